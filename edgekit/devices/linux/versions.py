"""The versions of a model on a device, and which one is current.

`deployments/MODEL` on the device holds a record for each version, and `current`, a link to the
folder of the current one, from which an application may load the model. A version becomes current
by one rename. Only the agent writes them (`agent/src/versions.cc`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError
from edgekit.devices.linux.device_log import TO_ROOT
from edgekit.devices.linux.probe import FOLDER
from edgekit.devices.linux.version_records import (
    LARGEST_RECORD,
    Version,
    VersionRecord,
    parse_versions,
)

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection

_MOST_OUTPUT = 8 << 20
_GONE = 66

CURRENT_VERSION = """\
current_version() {
  now=$(readlink current 2>/dev/null); now=${now#../../models/}
  case "$now" in *[!0-9a-f]*|'') now=none;; esac
  echo "$now"
}
"""

# Deletes partial objects and objects without links.
SWEEP_OBJECTS = """\
sweep_objects() {
  for object in objects/*; do
    [ -f "$object" ] || continue
    case "$object" in *.part) rm -f "$object"; continue;; esac
    links=$(ls -ld "$object" | { read -r mode links rest; echo "$links"; })
    [ "$links" -gt 1 ] || rm -f "$object"
  done
}
"""

_READ = f"""\
LC_ALL=C; export LC_ALL
{CURRENT_VERSION}
{TO_ROOT} 2>/dev/null && cd deployments 2>/dev/null || exit 0
for folder in *; do
  [ -d "$folder" ] || continue
  ( cd "$folder" || exit 0
    echo "model $(current_version) $folder"
    for file in *.version; do
      [ -f "$file" ] || continue
      version=${{file%.version}} there=gone
      [ -d "../../models/$version" ] && there=there
      {{ read -r stamp; read -r record; }} <"$file"
      echo "version $there $version"
      printf '%s\\n' "$stamp" | head -c 200
      printf '%s\\n' "$record" | head -c {LARGEST_RECORD}
    done
  )
done
"""

_HASH = """\
cd "$1" && shift && sha256sum "$@"
"""


def read_versions(connection: Connection, directory: str | None) -> tuple[Version, ...]:
    """Return every version of every deployed model, the newest of each model first."""
    words = ("sh", "-c", _READ, "edgekit", directory or FOLDER)
    done = connection.run(words, timeout=60, most_output=_MOST_OUTPUT)
    if done.status != 0:
        raise DeviceError(
            f"the versions on {connection.name} could not be read",
            hint="check the owner and permissions of edgekit's folder on the device",
            details=done.errors[-12:],
        )
    return parse_versions(done.output)


def damaged_files(connection: Connection, root: str, record: VersionRecord) -> tuple[str, ...]:
    """Return the names of a version's files that changed since its deployment."""
    names = [file.name for file in record.files]
    words = ("sh", "-c", _HASH, "edgekit", f"{root}/models/{record.digest}", *names)
    done = connection.run(words, timeout=600)
    hashes = {}
    for line in done.output.splitlines():
        sha256, _, name = line.partition("  ")
        hashes[name] = sha256
    return tuple(file.name for file in record.files if hashes.get(file.name) != file.sha256)
