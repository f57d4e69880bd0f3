"""The versions of a model on a device, and which one is current.

`deployments/MODEL` on the device holds a record for each version, and `current`, a link to the
folder of the current one, from which an application may load the model. A version becomes current
by one rename.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError
from edgekit.devices.base import Recorded
from edgekit.devices.linux.device_log import ADD_TO_LOG, TO_ROOT, checked_digest
from edgekit.devices.linux.probe import FOLDER
from edgekit.devices.linux.version_records import (
    LARGEST_RECORD,
    Version,
    VersionRecord,
    folder_of,
    parse_versions,
    record_text,
)

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection

_MOST_OUTPUT = 8 << 20
_GONE = 66

# A record's first line is the device's own: its number, the version current before, its clock.
# Without -T, which an old busybox lacks, mv would move the link into the folder that the old one
# leads to.
READ_STAMPS = """\
read_stamp() {
  number=0 before=none
  read -r number before rest <"$1" || :
  case "$number" in ''|0*|*[!0-9]*|??????????*) number=0;; esac
  case "$before" in *[!0-9a-f]*|'') before=none;; esac
}
current_version() {
  now=$(readlink current 2>/dev/null); now=${now#../../models/}
  case "$now" in *[!0-9a-f]*|'') now=none;; esac
  echo "$now"
}
make_current() {
  rm -f current.new
  ln -s "../../models/$1" current.new || return 1
  mv -fT current.new current 2>/dev/null && return
  ln -sfn "../../models/$1" current && rm -f current.new
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

# Keeps the current version, those that a rollback from it can reach, then the newest. Numbers order
# versions, because the clocks of the device and of other hosts may be wrong. Programs that a
# version already current, or one that removes none, does not need are not started: each costs a
# slow board time.
_RECORD = f"""\
LC_ALL=C; export LC_ALL
umask 077
{ADD_TO_LOG}{READ_STAMPS}{SWEEP_OBJECTS}
cd "$1" || exit 1
root=$(pwd) name=$2 digest=$3 keep=$4 record=$5 line=$6
[ -d "models/$digest" ] || exit {_GONE}
[ -d "deployments/$name" ] || mkdir -p "deployments/$name"
cd "deployments/$name" || exit 1
was=$(current_version) last=0 versions=1
for file in *.version; do
  [ -f "$file" ] || continue
  [ "$file" = "$digest.version" ] || versions=$((versions + 1))
  read_stamp "$file"
  [ "$number" -le "$last" ] || last=$number
done
before=$was
if [ "$was" = "$digest" ] && [ -f "$digest.version" ]; then read_stamp "$digest.version"; fi
printf '%s %s %s\\n%s\\n' $((last + 1)) "$before" "$(date +%s)" "$record" >record.new &&
  [ -s record.new ] || exit 1
[ "$was" = "$digest" ] || sync record.new 2>/dev/null || sync 2>/dev/null
mv -f record.new "$digest.version" || exit 1
if [ "$was" != "$digest" ]; then
  make_current "$digest" || exit 1
  sync . 2>/dev/null || sync 2>/dev/null
fi
echo "before $was"
if [ "$versions" -le "$keep" ]; then cd "$root"; add_to_log "$line" || :; exit 0; fi
kept=" $digest " count=1
while [ "$count" -lt "$keep" ] && [ -f "$before.version" ]; do
  case "$kept" in *" $before "*) break;; esac
  kept="$kept$before "; count=$((count + 1))
  read_stamp "$before.version"
done
for file in *.version; do
  [ -f "$file" ] && read_stamp "$file" && echo "$number $file"
done | sort -rn | while read -r number file; do
  version=${{file%.version}}
  case "$kept" in *" $version "*) continue;; esac
  case "$version" in *[!0-9a-f]*) rm -f "$file"; continue;; esac
  [ ${{#version}} -eq 64 ] || continue
  if [ "$count" -lt "$keep" ]; then count=$((count + 1)); continue; fi
  rm -f "$file"
  echo "removed $version"
done >removed
cd "$root" || exit 1
while read -r word version; do
  for other in deployments/*/"$version".version; do [ -f "$other" ] && continue 2; done
  rm -rf "models/$version"
done <"deployments/$name/removed"
cat "deployments/$name/removed"
[ ! -s "deployments/$name/removed" ] || sweep_objects
rm -f "deployments/$name/removed"
add_to_log "$line" || :
"""

_READ = f"""\
LC_ALL=C; export LC_ALL
{READ_STAMPS}
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

_GO_BACK = f"""\
LC_ALL=C; export LC_ALL
umask 077
{ADD_TO_LOG}{READ_STAMPS}
cd "$1" || exit 1
root=$(pwd)
cd "deployments/$2" && make_current "$3" || exit 1
cd "$root" && add_to_log "$4" || :
"""


def record_version(
    connection: Connection, root: str, record: VersionRecord, keep: int, line: str
) -> Recorded:
    """Make a version on the device the current one, delete all but the latest `keep`, and add
    `line` to the log, in one command. The caller must hold the device."""
    folder = folder_of(record.model)
    words = ("sh", "-c", _RECORD, "edgekit", root, folder, record.digest, str(keep))
    done = connection.run((*words, record_text(record), line), timeout=300)
    if done.status != 0:
        why = done.errors[-1].rpartition(": ")[2] if done.errors else "it said nothing"
        if done.status == _GONE:
            why = "its files are gone"
        raise DeviceError(
            f"{connection.name} could not make the model its current one: {why[:200].lower()}",
            hint=f"check {root} on the device; the current version is unchanged",
            details=done.errors[-12:],
        )
    lines = [line.partition(" ") for line in done.output.splitlines()]
    before = next((rest for word, _, rest in lines if word == "before"), None)
    removed = (checked_digest(rest) for word, _, rest in lines if word == "removed")
    return Recorded(checked_digest(before), tuple(digest for digest in removed if digest))


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


def make_current(connection: Connection, root: str, version: Version, line: str) -> None:
    record = version.record
    words = ("sh", "-c", _GO_BACK, "edgekit", root, folder_of(record.model), record.digest, line)
    done = connection.run(words)
    if done.status != 0:
        raise DeviceError(
            f"{connection.name} could not change the current version",
            hint=f"check the owner, permissions and disk of {root}/deployments on the device",
            details=done.errors[-12:],
        )
