"""A backend for edgekit: Tern, an NPU that does not exist, as its vendor would write it.

rules.py says what it takes, npu.py how large and how fast it is, program.py writes its commands,
and driver/ has a driver in C, which simulates the device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.base import GeneratedRegion, Option, Options, Region, Rule
from edgekit.backends.source import region_source
from edgekit_tern.npu import Npu

if TYPE_CHECKING:
    from edgekit.base.events import Events
    from edgekit.cross.sources import BuiltLibrary
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain

DRIVER = Path(__file__).parent / "driver"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-c")


@dataclass(frozen=True)
class Tern:
    name: str = "tern"
    title: str = "Tern NPU (simulated)"
    version: str = "1.0"
    architectures: tuple[str, ...] = ("aarch64", "x86_64")
    options: Mapping[str, Option] = field(
        default_factory=lambda: {
            "sram_kib": Option(4096, "the NPU's own memory"),
            "mhz": Option(500, "the NPU's clock"),
        }
    )
    before_folding: bool = False
    include: Path | None = None

    def rules(self, options: Options) -> Sequence[Rule]:
        from edgekit_tern.rules import all_rules

        return all_rules(_npu(options))

    def microseconds(self, region: Region, options: Options) -> float:
        """Estimate a call: all cycles of its commands, the transfers of its boundary included."""
        from edgekit_tern.program import write_program

        npu = _npu(options)
        return npu.microseconds(write_program(region, npu).commands)

    def generate(self, region: Region, options: Options) -> GeneratedRegion:
        from edgekit_tern.program import write_program

        program = write_program(region, _npu(options))
        blobs = {"commands": program.stream, "weights": program.weights or b"\0"}
        source = region_source(region, ["tern.h"], _job(region), "Job", blobs)
        return GeneratedRegion(region.symbol, self.name, source, blobs)

    def identity(self, board: Board, toolchain: Toolchain) -> str:
        """Hash what decides the driver's bytes: its source, compiler and flags."""
        from edgekit.base.files import sha256_bytes
        from edgekit.cross.link import Linker
        from edgekit.cross.toolchain import find_compiler

        compiler = find_compiler(toolchain)
        flags = Linker.for_board(board, toolchain, compiler).compile_flags
        files = [file.read_text(encoding="utf-8") for file in sorted(DRIVER.iterdir())]
        return sha256_bytes(json.dumps([files, compiler.banner, flags, FLAGS]).encode())

    def library(self, board: Board, toolchain: Toolchain, events: Events) -> BuiltLibrary:
        """Compile the driver for a board; the cache keeps it."""
        from edgekit.cross.link import Linker
        from edgekit.cross.sources import BuiltLibrary
        from edgekit.cross.sources.library import libraries_cache
        from edgekit.cross.toolchain import find_compiler
        from edgekit.cross.tools import run_tool

        key, cache = self.identity(board, toolchain), libraries_cache()
        with cache.locked(key):
            found = cache.find(key)
            if found is None:
                compiler = find_compiler(toolchain)
                flags = Linker.for_board(board, toolchain, compiler).compile_flags
                title = f"the driver of Tern for {board.cpu.arch}"
                with events.stage(f"compile {title}"), cache.storing(key, "library", title) as made:
                    source = ("-o", "tern.o", str(DRIVER / "tern.c"))
                    command = (*compiler.command, *flags, *FLAGS, *source)
                    run_tool(command, folder=made, doing=f"compile {title}")
            folder = cache.content(key)
        return BuiltLibrary(
            name=self.name, version=self.version, digest=key, include=(DRIVER,),
            link=(str(folder / "tern.o"),), run_time=(), needs=(), folder=folder,
            from_cache=found is not None,
        )  # fmt: skip


def _npu(options: Options) -> Npu:
    return Npu(int(options["sram_kib"]) * 1024, int(options["mhz"]))


def _job(region: Region) -> str:
    given = ", ".join(
        f"{{edgekit::data_of(inputs[{i}]), {t.nbytes}}}" for i, t in enumerate(region.inputs)
    )
    made = ", ".join(
        f"{{edgekit::data_of(outputs[{i}]), {t.nbytes}}}" for i, t in enumerate(region.outputs)
    )
    return f"""
class Job {{
 public:
  void run(const DLTensor* const* inputs, DLTensor* const* outputs) {{
    const tern_input given[] = {{{given}}};
    const tern_output made[] = {{{made}}};
    const tern_job job{{commands.data, commands.size, weights.data, weights.size,
                       given, {len(region.inputs)}, made, {len(region.outputs)}}};
    if (const char* wrong = tern_run(&job)) throw std::runtime_error(wrong);
  }}
}};
"""


BACKEND = Tern()
