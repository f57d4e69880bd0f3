"""ONNX's node cases on an emulated Raspberry Pi: built for the board, sent over SSH and run by the
agent. `benchmarks/onnx_nodes.py --twin` uses this."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence, Set
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.base.errors import EdgekitError
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.linux.ready_agent import ReadyAgent
    from edgekit.devices.linux.ssh import SshDevice
    from edgekit.models.model import Model

BOARD, TWIN = "rpi4", "onnx-nodes"
TIMEOUT_SECONDS = 60.0
SENT_AT_ONCE = 20


def build_for_board(model: Model, arguments: Sequence[np.ndarray], folder: Path) -> None:
    """Leave a bundle with these inputs in the folder `bundle` of a new folder."""
    from edgekit.backends.offloading import compile_model
    from edgekit.building.products.library import write_objects
    from edgekit.building.request import BuildRequest
    from edgekit.building.timing_bundle import timing_bundle
    from edgekit.cross.toolchain import find_compiler
    from edgekit.profiles.board import load_board
    from edgekit.profiles.toolchain import load_toolchain

    board = load_board(BOARD)
    toolchain = load_toolchain(board.toolchain)
    inputs = {spec.name: value for spec, value in zip(model.inputs, arguments, strict=True)}
    compiled = compile_model(model, board.target, linked=True)
    objects = folder / "objects"
    objects.mkdir(parents=True)
    timing_bundle(
        BuildRequest(model.source, board, toolchain),
        find_compiler(toolchain),
        write_objects(compiled, board.target, (), objects),
        (model.inputs, model.outputs),
        inputs,
        folder,
    )


def run_on_twin(folders: Sequence[Path]) -> Generator[list[np.ndarray] | EdgekitError, None, None]:
    """What the agent on a twin computes of each bundle's reference inputs, in the given order.

    All share one connection and one agent, which runs each model in a fork. After an error there
    is a new connection, so that an error is one bundle's only.
    """
    from edgekit.base.errors import EdgekitError
    from edgekit.bundle.folder import open_bundle

    waiting = deque(open_bundle(folder / "bundle") for folder in folders)
    libraries: dict[str, str] = {}
    with twin() as device:
        while waiting:
            with device.with_agent() as agent:
                failed = False
                while waiting and not failed:
                    if waiting[0].digest not in libraries:
                        libraries |= send(agent, list(islice(waiting, SENT_AT_ONCE)))
                    bundle = waiting.popleft()
                    try:
                        outputs = run_one(agent, bundle, libraries[bundle.digest])
                    except EdgekitError as error:
                        failed = True
                        yield error
                    else:
                        yield outputs


@contextmanager
def twin() -> Iterator[SshDevice]:
    """A twin of the board for the time of the block, with a disk of its own."""
    from edgekit.devices.emulated import emulated_device
    from edgekit.profiles.board import load_board
    from edgekit.twin.machine import down

    board = load_board(BOARD)
    device = emulated_device(TWIN, board, TIMEOUT_SECONDS)
    try:
        yield device
    finally:
        down(TWIN, delete=True)


def send(agent: ReadyAgent, bundles: Sequence[Bundle]) -> dict[str, str]:
    """Have the bundles' libraries on the device; their paths there by the bundle's digest."""
    from edgekit.devices.linux.probe import ask_device
    from edgekit.devices.linux.transfer import Item, Store

    facts = agent.leased.facts or ask_device(agent.connection, agent.root)
    folder = f"models/{bundles[0].digest}"
    items = {}
    for bundle in bundles:
        (file,) = bundle.code
        items[bundle.digest] = Item(bundle.library, f"{bundle.digest}.so", file.sha256, file.size)
    store = Store(agent.connection, facts)
    store.push(list(items.values()), folder)
    return {digest: store.path(folder, item.name) for digest, item in items.items()}


def run_one(agent: ReadyAgent, bundle: Bundle, library: str) -> list[np.ndarray]:
    """What a deployment's session does, of a library that is on the device."""
    from edgekit.base.events import SILENT
    from edgekit.devices.base import Installed
    from edgekit.devices.linux.ssh_session import SshSession
    from edgekit.profiles.board import load_board, toolchain_of

    board = load_board(bundle.manifest.board.name)
    installed = Installed(0, 0, 0, 0)
    session = SshSession(agent, bundle, library, installed, SILENT, toolchain_of(board))
    outputs = session.run(bundle.reference_inputs()).outputs
    return [outputs[entry.spec.name] for entry in bundle.manifest.outputs]


def one_an_operator(
    cases: Sequence[Any], operator_of: Callable[[Any], str], right: Set[str]
) -> list[Any]:
    """The smallest of each operator's cases that are right on this machine. One with elements in
    every tensor, and with the operator itself rather than what it expands to, comes first."""
    chosen: dict[str, Any] = {}
    for case in sorted((case for case in cases if case.name in right), key=_weight):
        chosen.setdefault(operator_of(case), case)
    return [chosen[operator] for operator in sorted(chosen, key=str.lower)]


def _weight(case: Any) -> tuple[bool, bool, int, str]:
    sizes = [_elements(value) for values in case.data_sets[0] for value in values]
    return 0 in sizes, "_expanded" in case.name, sum(sizes), case.name


def _elements(value: Any) -> int:
    if isinstance(value, list):
        return sum(_elements(item) for item in value)
    dims = getattr(value, "dims", None)  # of a tensor that onnx holds as a message
    return int(np.prod(dims)) if dims is not None else int(np.size(value))
