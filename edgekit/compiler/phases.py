"""A named phase of the compiler, how it is run, and how the module after it is written down.

`pipeline.py` lists the phases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.base.errors import BuildError, EdgekitError
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.options import option


@dataclass(frozen=True, eq=False)
class Phase:
    """Passes that together reach a form worth looking at, which `--dump-ir` writes."""

    name: str
    reaches: str
    passes: Sequence[Any]


Dump = Callable[[str, Any], None]
"""A function that writes a module to a file named after the phase it has reached."""


def no_dump(name: str, module: Any) -> None:
    """Write nothing."""


def dumper(folder: Path | None) -> Dump:
    """Return a function that writes numbered modules into a folder, or nothing without one."""
    if folder is None:
        return no_dump
    target_folder = folder
    written: list[str] = []
    with storage_errors("write the IR", target_folder):
        target_folder.mkdir(parents=True, exist_ok=True)

    def dump(name: str, module: Any) -> None:
        file = target_folder / f"{len(written)}-{name}.py"
        with storage_errors("write the IR", file):
            write_atomically(file, module.script(show_meta=False))
        written.append(name)

    return dump


def run_phases(phases: Iterable[Phase], module: Any) -> Any:
    for phase in phases:
        module = run_phase(phase, module)
    return module


def run_phase(phase: Phase, module: Any) -> Any:
    """Run the passes of a phase; BuildError where TVM fails."""
    from tvm.ir.transform import Sequential

    return guarded(f"phase {phase.name}", lambda: Sequential([*phase.passes])(module))


def guarded(what: str, work: Callable[[], Any]) -> Any:
    """Run a function of TVM; raise BuildError where it fails."""
    try:
        return work()
    except EdgekitError:
        raise
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise BuildError(
            f"TVM failed in {what}: {lines[-1] if lines else type(error).__name__}",
            hint=f"run again with {option('dump-ir', 'DIR')} to see the module before it, "
            f"{option('debug')} for more",
            details=tuple(lines[-8:]),
        ) from error
