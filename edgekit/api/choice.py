"""The device that a caller means: by name, by a bundle's board, or the only one that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Union

from edgekit.api.device import DeviceHandle, Setting
from edgekit.api.keywords import (
    BenchKeywords,
    BindingKeywords,
    BuildKeywords,
    LimitKeywords,
    LoadgenKeywords,
    OutcomeKeywords,
    PlanKeywords,
    ShowKeywords,
)
from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.base.options import option
from edgekit.bundle.folder import Bundle
from edgekit.devices.choice import Candidate
from edgekit.devices.device import Device
from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS
from edgekit.devices.registry import find_device, known_devices
from edgekit.profiles.board import Board
from edgekit.project.devices import DeviceEntry
from edgekit.project.file import LOCAL

DeviceLike = Union[DeviceHandle, "Device", str]
"""A device, or its name."""


class DeviceKeywords(TypedDict, total=False):
    """Which device a method uses. By default it is the board's first free one."""

    device: DeviceLike | None
    """The device, or its name."""
    twin: bool
    """Whether to use the board's emulated twin, and to start it if necessary."""
    timeout: float
    """The seconds without a response after which to give up."""


class TargetKeywords(BuildKeywords, DeviceKeywords, total=False):
    """What decides a build (BuildKeywords), and the device to use (DeviceKeywords)."""


class ResultKeywords(TargetKeywords, OutcomeKeywords, total=False):
    """What decides a build and its device (TargetKeywords), and its files (OutcomeKeywords)."""


class DeployKeywords(TargetKeywords, PlanKeywords, total=False):
    """What decides a build and its device (TargetKeywords), and the steps after (PlanKeywords)."""


class RunKeywords(ShowKeywords, DeviceKeywords, total=False):
    """What is shown of a run (ShowKeywords), and the device to use (DeviceKeywords)."""


class MeasureKeywords(BenchKeywords, DeviceKeywords, total=False):
    """How long to measure (BenchKeywords), and the device to use (DeviceKeywords)."""


class EvaluateKeywords(LimitKeywords, DeviceKeywords, total=False):
    """What passes (LimitKeywords), and the device to use (DeviceKeywords)."""


class MlperfKeywords(LoadgenKeywords, DeviceKeywords, total=False):
    """What LoadGen tests (LoadgenKeywords), and the device to use (DeviceKeywords)."""


class VerifyKeywords(BindingKeywords, DeviceKeywords, total=False):
    """What is fixed of inputs (BindingKeywords), and the device to use (DeviceKeywords)."""


@dataclass(frozen=True)
class DeviceChoice:
    """A caller's words for a device, or for several."""

    names: tuple[str, ...] | None = None
    every: bool = False
    """Whether all known devices of the board are meant."""
    twin: bool = False
    timeout: float = DEFAULT_TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        if self.every and (self.names is not None or self.twin):
            raise UsageError(
                f"{option('all')} names every device, and {option('device')} or {option('twin')} "
                "only some",
                hint="leave one of them out",
            )
        if self.twin and self.is_several:
            raise UsageError(
                f"{option('twin')} and {option('device')} name different devices",
                hint="leave one out",
            )

    @property
    def name(self) -> str | None:
        return self.names[0] if self.names else None

    @property
    def keywords(self) -> DeviceKeywords:
        """The words for one device, as keyword arguments."""
        return {"device": self.name, "twin": self.twin, "timeout": self.timeout}

    @property
    def is_several(self) -> bool:
        return self.every or (self.names is not None and len(self.names) > 1)


def entries_of(setting: Setting) -> dict[str, DeviceEntry]:
    """Return the entries of all known devices by name."""
    return {name: known.entry for name, known in known_devices(setting.data.project).items()}


def device_for_board(
    setting: Setting,
    board: Board,
    device: DeviceLike | None = None,
    *,
    twin: bool = False,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
) -> Device:
    """Return a device of the board: the one that is meant, or the first free one."""
    from edgekit.devices.choice import device_for

    if isinstance(device, DeviceHandle):
        return device.device
    if device is not None and not isinstance(device, str):
        return device
    return device_for(board, device, entries_of(setting), timeout, setting.events, twin=twin)


def device_for_bundle(
    setting: Setting,
    bundle: Bundle,
    device: DeviceLike | None = None,
    *,
    twin: bool = False,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
) -> Device:
    """Return a device of the board that the bundle was built for."""
    from edgekit.devices.local.device import LocalDevice

    built_for = bundle.manifest.board
    if not twin and (device == LOCAL or (device is None and built_for.is_host)):
        return LocalDevice(timeout)
    board = setting.data.board(built_for.name)
    return device_for_board(setting, board, device, twin=twin, timeout=timeout)


def with_board_of(
    setting: Setting, how: Mapping[str, Any], device: DeviceLike | None, twin: bool = False
) -> dict[str, Any]:
    """Add the board of a named device where neither the caller nor the project names one. A twin
    needs its board named: UsageError for the name of neither."""
    from edgekit.devices.choice import no_such_twin

    given, project = dict(how), setting.data.project
    named = given.get("board") is not None or (project is not None and project.board is not None)
    if not named and isinstance(device, str):
        known = known_devices(project)
        if twin and device not in known and not _is_twin(device):
            raise no_such_twin(device)
        if device in known or not _is_twin(device):
            given["board"] = (
                LOCAL
                if device == LOCAL
                else find_device(device, known).board(setting.data.folder, setting.events)
            )
    return given


def several_devices(
    setting: Setting, board: Board, names: Sequence[str] | None, timeout: float
) -> tuple[Candidate, ...]:
    """Return the named devices, or all known ones of the board."""
    from edgekit.devices.choice import devices_for

    return devices_for(board, names, entries_of(setting), timeout)


def remote_devices(
    setting: Setting, board_name: str | None, choice: DeviceChoice
) -> tuple[Candidate, ...]:
    """Return the chosen devices for work besides bundles, without preparing them for any.

    With neither names nor --twin: all of the board, or the only known one.
    """
    from edgekit.devices.choice import Candidate

    board = None if board_name is None else setting.data.board(board_name)

    def candidate(name: str | None) -> Candidate:
        handle = handle_of(setting, name, board, twin=choice.twin, timeout=choice.timeout)
        return Candidate(handle.name, lambda events: handle.device)

    names = choice.names
    if names is None and not choice.twin and (choice.every or board is not None):
        names = tuple(
            name
            for name, known in known_devices(setting.data.project).items()
            if (
                known.entry.board == board.name
                if board
                else known.board(setting.data.folder).has_os
            )
        )
        if not names:
            raise _no_device_chosen([])
    return tuple(candidate(name) for name in names or (None,))


def handle_of(
    setting: Setting, name: str | None, board: Board | None, *, twin: bool, timeout: float
) -> DeviceHandle:
    """Return the device that a name or a board implies."""
    from edgekit.devices.choice import device_for

    data = setting.data
    known, board_name = known_devices(data.project), board.name if board else None
    if name is None and not twin:
        fitting = [d.entry for d in known.values() if board_name in (None, d.entry.board)]
        if len(fitting) == 1:
            name = fitting[0].name
        elif board_name is None and (data.project is None or data.project.board is None):
            raise _no_device_chosen([entry.name for entry in fitting])
    if board is None and name is not None and name != LOCAL:
        if name not in known:
            board_name = _board_of_twin(name, twin)
        board = (
            data.board(board_name)
            if board_name
            else find_device(name, known).board(data.folder, setting.events)
        )
    chosen = data.board(LOCAL if name == LOCAL else board)

    def reach() -> Device:
        entries = {key: device.entry for key, device in known.items()}
        return device_for(chosen, name, entries, timeout, setting.events, twin=twin)

    return DeviceHandle(name or chosen.name, chosen.name, setting, reach)


def _is_twin(name: str) -> bool:
    from edgekit.twin.machine import all_twins

    return any(twin.name == name for twin in all_twins())


def _board_of_twin(name: str, twin_given: bool) -> str | None:
    """Return the board of the twin with that name, None if there is none."""
    from edgekit.devices.choice import no_such_twin
    from edgekit.twin.machine import all_twins

    twin = next((twin for twin in all_twins() if twin.name == name), None)
    if twin is None and twin_given:
        raise no_such_twin(name)
    if twin is None or twin_given:
        return None if twin is None else twin.board
    which = "" if name == twin.board else f" {option('device', name)}"
    raise UsageError(
        f"there is no device {name!r}, only a twin of that name",
        hint=f"say {option('board', twin.board)} {option('twin')}{which}",
    )


def _no_device_chosen(known: list[str]) -> EdgekitError:
    if known:
        return UsageError(
            f"several devices are known: {', '.join(known)}",
            hint=f"say which with {option('device', 'NAME')}, or {option('board', 'NAME')} for "
            "the first free one of a board",
        )
    return DeviceError(
        "no device is known",
        hint="edgekit device add NAME --board BOARD user@host adds one; "
        f"{option('board', 'BOARD')} "
        f"{option('twin')} uses an emulated one",
    )
