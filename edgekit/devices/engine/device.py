"""An engine of WebAssembly on this machine as a device. Its times are the engine's, no board's."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from edgekit.base.errors import BundleError, DeviceError, MissingToolError, UsageError
from edgekit.base.measurer import Measurer
from edgekit.base.options import option
from edgekit.base.programs import find_program
from edgekit.base.wording import did_you_mean
from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS, LocalDevice
from edgekit.profiles.toolchain import apt_command, pip_command

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.profiles.board import Board, Engine

_MAGIC = b"\0asm"


@dataclass(frozen=True)
class _Kind:
    """How an engine is found on this machine."""

    find: Callable[[], str | None]
    """Return the engine's program, empty for a Python package; None if it is missing."""
    install: Callable[[], str]


def _find_wasmtime() -> str | None:
    return None if importlib.util.find_spec("wasmtime") is None else ""


def _find_node() -> str | None:
    program = find_program("node")
    return None if program is None else str(program)


_KINDS: dict[Engine, _Kind] = {
    "wasmtime": _Kind(_find_wasmtime, lambda: pip_command("edgekit[wasm]")),
    "node": _Kind(_find_node, lambda: apt_command(("nodejs",))),
}


def is_installed(engine: Engine) -> bool:
    """Return whether an engine is on this machine."""
    return _KINDS[engine].find() is not None


def how_to_install(engine: Engine) -> str:
    """Return the command that installs an engine."""
    return _KINDS[engine].install()


def in_words(board: Board) -> str:
    """Name the engines of a board."""
    return f"{' or '.join(board.transport.engines)} on this machine"


def engine_for(board: Board, name: str | None, timeout: float) -> EngineDevice:
    """Return the engine of that name, or the first of the board's that is installed."""
    engines = board.transport.engines
    chosen = [engine for engine in engines if engine == name]
    if name is not None and not chosen:
        raise UsageError(
            f"{board.name} has no engine {name!r}",
            hint=did_you_mean(name, engines, f"its models run in {in_words(board)}"),
        )
    found = chosen or [engine for engine in engines if is_installed(engine)] or engines
    return EngineDevice(timeout, found[0])


@dataclass(frozen=True)
class EngineDevice(LocalDevice):
    what: ClassVar[str] = "an engine of WebAssembly"
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    name: Engine = field(default="wasmtime")

    @property
    def measured_by(self) -> Measurer:
        return "engine"

    def worker(self) -> list[str]:
        return ["edgekit.devices.engine.worker", self.name, self._program()]

    def check_free(self) -> None:
        self._program()

    def _program(self) -> str:
        program = _KINDS[self.name].find()
        if program is None:
            raise MissingToolError(f"{self.name} is not installed", hint=how_to_install(self.name))
        return program

    def _check(self, bundle: Bundle) -> None:
        if not bundle.manifest.board.in_engine:
            raise DeviceError(
                f"the bundle was built for the board {bundle.manifest.board.name}, and "
                f"{self.name} runs WebAssembly",
                hint=f"build it again with {option('board', 'wasm32-wasi')}",
            )
        with bundle.library.open("rb") as module:
            if module.read(len(_MAGIC)) != _MAGIC:
                raise BundleError(
                    f"the library of the bundle {bundle.path} is no module of WebAssembly",
                    hint="build the bundle again",
                )
        self._program()
