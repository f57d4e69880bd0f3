"""Runners: separate libraries of a model, compiled where the vendor's headers are."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.base import HasRunner, Runner
from edgekit.backends.codegen import RegionFiles
from edgekit.backends.registry import load_backend
from edgekit.base.errors import BuildError
from edgekit.base.files import storage_errors
from edgekit.base.wording import few
from edgekit.bundle.manifest_runners import Built, RunnerEntry, runner_library, runner_source
from edgekit.cross.tools import run_tool

if TYPE_CHECKING:
    from edgekit.backends.compile import Workbench

_FLAGS = (
    *("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
    *("-Wl,--build-id=none", "-Wl,--strip-all"),
)


def make_runners(
    regions: Sequence[RegionFiles], bench: Workbench, folder: Path
) -> tuple[RunnerEntry, ...]:
    """Write each runner's source to the bundle's `folder`, and its library if the host has the
    headers. The linker of `bench` has the board's C++ compiler."""
    made: list[RunnerEntry] = []
    for name in dict.fromkeys(region.backend for region in regions):
        backend = load_backend(name)
        if not isinstance(backend, HasRunner):
            continue
        runner = backend.runner(bench.board, bench.toolchain)
        source, library = runner_source(name), runner_library(name)
        with storage_errors("write the source of a library", folder):
            (folder / source).parent.mkdir(exist_ok=True)
            (folder / source).write_text(runner.source, encoding="utf-8")
        if runner.include:
            layers = [layer for r in regions if r.backend == name for layer in r.layers]
            with bench.events.stage(f"compile what speaks to {backend.title}"):
                _compile(runner, backend.title, layers, bench, library)
            with storage_errors("write the libraries", folder):
                shutil.copyfile(bench.scratch / library, folder / library)
        built: Built = "host" if runner.include else "device"
        made.append(RunnerEntry(name, built, source, library, runner.version))
    return tuple(made)


def _compile(
    runner: Runner, title: str, layers: Sequence[str], bench: Workbench, library: str
) -> None:
    """Compile by relative names, so that the library contains no paths of the host."""
    linker, scratch = bench.linker, bench.scratch
    source = Path(library).with_suffix(".cc").name
    with storage_errors("compile a library", scratch):
        (scratch / source).write_text(runner.source, encoding="utf-8")
    headers = (word for path in runner.include for word in ("-I", str(path)))
    try:
        run_tool(
            (
                *linker.compiler.command,
                *linker.compile_flags,
                *_FLAGS,
                *headers,
                *("-o", library, source),
                *linker.link_flags,
                "-ldl",
            ),
            folder=scratch,
            doing="compile a library",
        )
    except BuildError as error:
        raise BuildError(
            f"what speaks to {title} for the region of {few(layers)} does not compile with the "
            f"headers of {runner.version}",
            hint=f"check that the headers are those of the board's own {title}, and all of one "
            "version",
            details=error.details,
        ) from error
