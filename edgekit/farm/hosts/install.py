"""Units for the user's systemd, on this host or a joined one: the farm starts with the host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.children import module_command
from edgekit.base.decode import decode_json
from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.paths import config_dir, named_path
from edgekit.base.programs import with_absolute_paths
from edgekit.base.quoting import systemd_command, systemd_path, systemd_word
from edgekit.farm.hosts.file import find_host, known_hosts_of_farm
from edgekit.farm.plan import plan_farm
from edgekit.project.file import Project
from edgekit.rpc.protocol import DEFAULT_PORT

_UNIT = """\
# Written by `edgekit farm install`.
[Unit]
Description={description}
After={after}

[Service]
ExecStart={command}
WorkingDirectory={folder}
{environment}Restart=on-failure
RestartSec=5
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""
_FARM = ("edgekit-farm.service", "edgekit farm", "network-online.target")
_WEB = ("edgekit-farm-web.service", "edgekit farm's page", "edgekit-farm.service")
_PASSED_ON = ("PATH", "LG_COORDINATOR", "LG_ENV", "LG_PROXY")
"""The variables that locate the farm's programs, which systemd lacks."""
_SCRIPT = """\
PATH=$PATH:$HOME/.local/bin:/usr/local/bin; export PATH
exec "$@" """
_SECONDS_ON_HOST = 120.0


@dataclass(frozen=True)
class Installed:
    units: tuple[Path, ...]
    commands: tuple[str, ...]
    """The commands that enable the units."""


def install(
    project: Project | None, names: Sequence[str], options: Sequence[str] = (), *, web: bool
) -> Installed:
    """Write the units, and start nothing. The options are those of `edgekit farm up`."""
    plan_farm(project, names, DEFAULT_PORT)  # an impossible farm is refused
    folder = project.path.parent if project is not None else Path.home()
    if any(character in str(folder) for character in "\n\r"):
        raise UsageError("the project's folder has a line break in its name", hint="rename it")
    named_path("LG_ENV")  # a unit with a relative path would name a file of the project
    searched = with_absolute_paths(os.environ)
    environment = "".join(
        f"Environment={systemd_word(f'{name}={value}')}\n"
        for name in _PASSED_ON
        if (value := searched.get(name)) and value.isprintable()
    )
    place = config_dir().parent / "systemd" / "user"
    edgekit = module_command("edgekit")
    units = [(*_FARM, [*edgekit, "farm", "up", *options, *names])]
    if web:
        units.append((*_WEB, [*edgekit, "farm", "web"]))
    written = []
    with storage_errors("write the units", place):
        place.mkdir(parents=True, exist_ok=True)
        for name, description, after, words in units:
            path = place / name
            write_atomically(
                path,
                _UNIT.format(
                    description=description,
                    after=after,
                    command=systemd_command(words),
                    folder=systemd_path(folder),
                    environment=environment,
                ),
            )
            written.append(path)
    services = " ".join(path.name for path in written)
    return Installed(
        tuple(written),
        (
            "systemctl --user daemon-reload",
            f"systemctl --user enable --now {services}",
            "loginctl enable-linger    # so that they run while you are away",
        ),
    )


def install_on(
    name: str, devices: Sequence[str], options: Sequence[str] = (), *, web: bool
) -> Installed:
    """Write the units of a joined host with its own edgekit."""
    from edgekit.devices.linux.connection import connect

    host = find_host(name, known_hosts_of_farm())
    words = [host.program or "edgekit", "farm", "install", "--json", *options, *devices]
    words += [] if web else ["--no-web"]
    with connect(host.entry) as connection:
        done = connection.run(("sh", "-c", _SCRIPT, "edgekit", *words), timeout=_SECONDS_ON_HOST)
    try:
        return decode_json(Installed, done.output, ignore_unknown=True)
    except ValueError as error:
        raise DeviceError(
            f"no units could be written on {name}",
            hint=f"run edgekit farm install on {name} to see why",
            details=done.errors[-12:],
        ) from error
