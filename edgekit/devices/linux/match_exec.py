"""An SSH configuration whose `Match exec` commands run like any other child process."""

from __future__ import annotations

from typing import Any

from paramiko import SSHConfig

from edgekit.base.children import NEUTRAL_FOLDER, TimeoutExpired, run, shell_command
from edgekit.base.errors import DeviceError

_SECONDS_TO_MATCH = 20.0


class IsolatedConfig(SSHConfig):  # type: ignore[misc]
    """Runs these commands isolated; paramiko would start them in the caller's folder."""

    def _does_match(
        self,
        match_list: list[dict[str, Any]],
        target_hostname: str,
        canonical: bool,
        final: bool,
        options: dict[str, Any],
    ) -> bool:
        others = [each for each in match_list if each["type"] != "exec"]
        commands = [each for each in match_list if each["type"] == "exec"]
        if others or not commands:
            matched = super()._does_match(others, target_hostname, canonical, final, options)
            if not matched:
                return False
        return all(
            _succeeds(self._tokenize(options, target_hostname, "match-exec", each["param"]))
            != each["negate"]
            for each in commands
        )


def _succeeds(command: str) -> bool:
    try:
        done = run(shell_command(command), folder=NEUTRAL_FOLDER, limit_s=_SECONDS_TO_MATCH)
    except TimeoutExpired as error:
        raise DeviceError(
            f"the SSH configuration's Match exec did not end within {_SECONDS_TO_MATCH:g} s: "
            f"{command[:200]}",
            hint="correct that command: it runs in the folder / and cannot ask at the terminal",
        ) from error
    return done.status == 0
