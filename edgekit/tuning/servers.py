"""Serves devices over TVM's RPC during a search, behind a private tracker on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from edgekit.base.errors import DeviceError
from edgekit.building.compilation import Failure
from edgekit.building.compile_process import error_of
from edgekit.rpc.protocol import TrackerAddress
from edgekit.rpc.server import ServePlan
from edgekit.rpc.tracker import private_tracker
from edgekit.tuning.child import Child, ChildGone
from edgekit.tuning.work import LocalPlan, Trouble, Up

_SECONDS_TO_COME_UP = 300.0
"""The longest start of a device, which may start a twin and upload an agent."""
_A_LONG_TIME = 365 * 86_400.0

Plan = ServePlan | LocalPlan


@dataclass
class Servers:
    tracker: TrackerAddress
    names: dict[int, str] = field(default_factory=dict)
    """Names of devices by the port that clients connect to."""

    def name_of(self, port: int) -> str:
        return self.names.get(port, "a device")


@contextmanager
def served(
    plans: Callable[[TrackerAddress], Sequence[tuple[str, Plan]]],
    told: Callable[[str, str], None],
) -> Iterator[Servers]:
    """Serve devices and report their troubles to `told`; raise DeviceError if none comes up."""

    def refused(reason: str) -> None:
        told("the tracker", reason)

    with private_tracker(refused) as tracker, ExitStack() as closing:
        servers = Servers(tracker)
        wanted = list(plans(tracker))
        children = [(name, Child("edgekit.tuning.serving", plan)) for name, plan in wanted]
        for _, child in children:
            closing.callback(child.close)
            child.start()
        problems: list[DeviceError] = []
        for name, child in children:
            try:
                servers.names[_port_of(name, child, told)] = name
            except DeviceError as error:
                problems.append(error)
                told(name, error.message)
                continue
            listener = threading.Thread(target=_listen, args=(name, child, servers, told))
            listener.daemon = True
            listener.start()
        if not servers.names:
            raise problems[0]
        yield servers


def _port_of(name: str, child: Child, told: Callable[[str, str], None]) -> int:
    while True:
        try:
            message = child.receive(_SECONDS_TO_COME_UP)
        except ChildGone as gone:
            raise DeviceError(
                f"{name} can't be served: {gone.reason}",
                hint="`edgekit rpc serve` with that device shows details",
            ) from gone
        if isinstance(message, Up):
            return message.port
        if isinstance(message, Failure):
            raise error_of(message)
        told(name, message.text)


def _listen(name: str, child: Child, servers: Servers, told: Callable[[str, str], None]) -> None:
    """Follow a device until it ends: a lost one may come back on another port."""
    while True:
        try:
            message = child.receive(_A_LONG_TIME)
        except ChildGone:
            return
        if isinstance(message, Up):
            servers.names[message.port] = name
        elif isinstance(message, Trouble):
            told(name, message.text)
        elif isinstance(message, Failure):
            told(name, message.message)
            return
