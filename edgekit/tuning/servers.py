"""Serves devices over TVM's RPC during a search, behind a private tracker on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer
from edgekit.base.options import option
from edgekit.rpc.protocol import TrackerAddress
from edgekit.rpc.server import ServePlan
from edgekit.rpc.tracker import private_tracker
from edgekit.tuning.messages import LocalPlan, Trouble, Up

_SECONDS_TO_COME_UP = 300.0
"""The longest start of a device, which may start a twin and upload an agent."""

Plan = ServePlan | LocalPlan


@dataclass(frozen=True)
class Pool:
    """Devices behind a tracker."""

    tracker: TrackerAddress
    names: tuple[str, ...]
    keys: tuple[str, ...]
    """The key that each runner requests from the tracker."""
    name_of: Callable[[int], str]
    """A function from a device's port to its name."""
    priority: int = 1
    taken: Callable[[int, str], None] = lambda port, offer: None
    """A callback for a runner that got a device: its port, and the tracker's offer."""
    is_emulated: bool = False
    """Whether they are twins, whose times are for twins only. No pool has twins and boards."""

    @property
    def measured_by(self) -> Measurer:
        return "emulator" if self.is_emulated else "hardware"


@contextmanager
def served(
    plans: Callable[[TrackerAddress], Sequence[tuple[str, Plan]]], events: Events = SILENT
) -> Iterator[Pool]:
    """Serve devices, the key of each its name; raise DeviceError if none comes up."""
    lock = threading.Lock()
    names: dict[int, str] = {}
    measurers: dict[str, Measurer] = {}

    def told(name: str, text: str) -> None:
        with lock:
            events.warn(f"{name}: {text}")

    with (
        private_tracker(lambda reason: told("the tracker", reason)) as tracker,
        ExitStack() as closing,
    ):
        wanted = list(plans(tracker))
        children = [(name, Child("edgekit.tuning.serving", setup=plan)) for name, plan in wanted]
        for _, child in children:
            closing.enter_context(child).start()
        problems: list[DeviceError] = []
        for name, child in children:
            try:
                up = _first_up(name, child, told)
                names[up.port], measurers[name] = name, up.measured_by
            except DeviceError as error:
                problems.append(error)
                told(name, error.message)
                continue
            follow = (name, child, names, told)
            threading.Thread(target=_listen, args=follow, daemon=True).start()
        if not names:
            raise problems[0]
        is_emulated = are_emulated({n: by == "emulator" for n, by in measurers.items()})
        ready = tuple(measurers)
        yield Pool(
            tracker, ready, ready, lambda port: names.get(port, "a device"), is_emulated=is_emulated
        )


def are_emulated(devices: Mapping[str, bool]) -> bool:
    """Return whether all devices are emulated; UsageError for some, which would mix times."""
    twins = [name for name, is_emulated in devices.items() if is_emulated]
    boards = [name for name, is_emulated in devices.items() if not is_emulated]
    if twins and boards:
        raise UsageError(
            f"{twins[0]} is emulated and {boards[0]} is not: their times can't be mixed",
            hint=f"tune on boards or on twins: name them with {option('device')}; "
            f"`edgekit farm drain {twins[0]}` takes one out of a farm",
        )
    return bool(twins)


def _first_up(name: str, child: Child, told: Callable[[str, str], None]) -> Up:
    while True:
        try:
            message = child.receive(_SECONDS_TO_COME_UP)
        except ChildGone as gone:
            raise DeviceError(
                f"{name} can't be served: {gone.reason}",
                hint="`edgekit rpc serve` with that device shows details",
            ) from gone
        if isinstance(message, Up):
            return message
        told(name, message.text)


def _listen(
    name: str, child: Child, names: dict[int, str], told: Callable[[str, str], None]
) -> None:
    """Follow a device until it ends: a lost one may come back on another port."""
    while True:
        try:
            message = child.receive()
        except ChildGone:
            return
        except EdgekitError as error:
            told(name, error.message)
            return
        if isinstance(message, Up):
            names[message.port] = name
        elif isinstance(message, Trouble):
            told(name, message.text)
