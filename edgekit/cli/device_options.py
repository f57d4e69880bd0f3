"""Options that choose a device: --device, --twin, or the board's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from edgekit.cli.input_options import timeout_option
from edgekit.cli.options import DEVICE, REMOTE_DEVICE, board_option, grouped

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceChoice


twin_option = click.option(
    "--twin", is_flag=True, help="Use the board's emulated twin; start it if necessary."
)
every_option = click.option(
    "--all", "every", is_flag=True, help="Use every known device of the board."
)


@dataclass(frozen=True)
class Login:
    """How to log in to a host."""

    key: Path | None
    proxy: str | None
    fingerprint: str | None

    def expected(self) -> str | None:
        """Return the expected host key; UsageError if it can't be one."""
        from edgekit.devices.linux.hostkeys import check_fingerprint

        return None if self.fingerprint is None else check_fingerprint(self.fingerprint)


fingerprint_option = click.option(
    "--fingerprint",
    metavar="SHA256:…",
    help="Expected host key, as ssh-keygen -l on that host prints it; skips the question.",
)
login_options = grouped(
    "login",
    Login,
    click.option(
        "--key",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The private key to log in with.",
    ),
    click.option("--proxy", metavar="[USER@]HOST[:PORT]", help="A jump host."),
    fingerprint_option,
)
"""Options that add `login: Login`."""

_device_option = click.option(
    "--device",
    "device_name",
    type=DEVICE,
    metavar="NAME",
    help="The device; edgekit device list shows them.",
)


def _device_keywords(device_name: str | None, **given: Any) -> Any:
    return {"device": device_name, **given}


device_options = grouped("where", _device_keywords, _device_option, twin_option)
"""Options that add `where: DeviceKeywords`."""
device_options_with_timeout = grouped(
    "where", _device_keywords, _device_option, twin_option, timeout_option
)
"""The same, with the timeout."""


class _Devices(click.ParamType[tuple[str, ...]]):
    """A comma-separated list of names."""

    name = "devices"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        words = tuple(word.strip() for word in str(value).split(","))
        if "" in words or len(set(words)) < len(words):
            self.fail(f"{value!r} is no list of different devices such as a,b", param, ctx)
        return words

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(f"{before}{comma}{item.value}")
            for item in DEVICE.shell_complete(ctx, param, last)
        ]


DEVICES = _Devices()


def _device_choice(device_names: tuple[str, ...] | None, **given: Any) -> DeviceChoice:
    from edgekit.api.choice import DeviceChoice

    return DeviceChoice(device_names, **given)


several_devices_options = grouped(
    "where",
    _device_choice,
    click.option(
        "--device",
        "device_names",
        type=DEVICES,
        metavar="NAME[,NAME…]",
        help="The device, or several at the same time; edgekit device list shows them.",
    ),
    every_option,
    twin_option,
    timeout_option,
)
"""Options that add `where: DeviceChoice`."""


def _remote_choice(
    board_name: str | None, device_names: tuple[str, ...] | None, **given: Any
) -> tuple[str | None, DeviceChoice]:
    return board_name, _device_choice(device_names, **given)


remote_devices_options = grouped(
    "where",
    _remote_choice,
    click.option(
        "--device",
        "device_names",
        type=DEVICES,
        metavar="NAME[,NAME…]",
        help="The device, or several at the same time.  [default: the only known one]",
    ),
    board_option,
    click.option("--all", "every", is_flag=True, help="Use every known device, or all of --board."),
    twin_option,
)
"""Options that add `where`: the name of a board and a DeviceChoice."""

tuning_device_options = grouped(
    "where",
    _device_choice,
    click.option(
        "--device",
        "--devices",
        "device_names",
        type=DEVICES,
        metavar="NAME[,NAME…]",
        help="The devices to measure on.  [default: the farm's, or the board's first free one]",
    ),
    every_option,
    twin_option,
    timeout_option,
)
"""The same, for a search."""

_remote_options = (
    click.option(
        "--device",
        "device_name",
        type=REMOTE_DEVICE,
        metavar="NAME",
        help="The device; edgekit device list shows them.",
    ),
    board_option,
    click.option("--twin", is_flag=True, help="Use the board's emulated twin."),
)


def _remote_keywords(device_name: str | None, board_name: str | None, twin: bool) -> Any:
    return {"device": device_name, "board": board_name, "twin": twin}


def _remote_keywords_with_timeout(timeout: float, **given: Any) -> Any:
    return {"timeout": timeout, **_remote_keywords(**given)}


remote_device_options = grouped("where", _remote_keywords, *_remote_options)
"""Options that add `where`, the keywords of `Workspace.reached`."""
remote_options_with_timeout = grouped(
    "where", _remote_keywords_with_timeout, *_remote_options, timeout_option
)
"""The same, with the timeout."""
