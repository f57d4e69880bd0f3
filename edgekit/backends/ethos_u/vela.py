"""Runs Vela in a process of its own, and reads what it made of a network."""

from __future__ import annotations

import csv
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.backends.ethos_u.configuration import VELA_FILE, Configuration
from edgekit.backends.ethos_u.network import Network, NotForVela
from edgekit.base.children import module_command
from edgekit.base.errors import BuildError
from edgekit.cross.tools import run_tool

_LEFT = re.compile(r"CPU operations \(found (\w+)\)")
_ERROR = re.compile(r"^(?:\w*Error|ERROR)[: ]+(?:Compilation failed: )?(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Made:
    """What runs a network on the NPU."""

    commands: bytes
    """The driver's payload: its header, then the command stream."""
    constants: bytes
    constants_region: int
    """The number of the base pointer to the constants in the commands."""
    scratch_region: int
    fast_region: int
    scratch_bytes: int
    fast_bytes: int
    """Memory of another kind that the memory mode asks for, behind the scratch."""
    inputs: tuple[int, ...]
    """The offset of each input in the scratch."""
    outputs: tuple[int, ...]
    cycles: int
    """Vela's estimate."""
    estimated_bytes: int
    """Vela's estimate of what is read and written, blocks that are read again included."""


def compile_network(network: Network, configuration: Configuration) -> Made:
    """Return what Vela makes of the network; raise NotForVela if it leaves a part to the CPU."""
    with tempfile.TemporaryDirectory(prefix="edgekit-vela-") as place:
        folder = Path(place)
        (folder / "region.tflite").write_bytes(network.content)
        command = (
            *module_command("ethosu.vela", "region.tflite"),
            *("--accelerator-config", configuration.accelerator),
            *("--config", VELA_FILE, "--system-config", configuration.system),
            *("--memory-mode", configuration.memory_mode),
            *("--output-format", "raw", "--output-dir", "."),
        )
        try:
            run_tool(command, folder=folder, doing="compile a region with Vela")
        except BuildError as error:
            raise NotForVela(_reason(error)) from error
        files = sorted(folder.glob("*.npz"))
        if len(files) != 1:
            raise NotForVela("Vela makes no command stream of it")
        return _made(files[0], network, *_estimates(folder))


def _reason(error: BuildError) -> str:
    said = "\n".join((error.message, *error.details))
    left = _LEFT.search(said)
    if left:
        return f"Vela leaves {left[1]} to the CPU"
    found = _ERROR.findall(said)
    words = found[-1] if found else "it ended without a word"
    return f"Vela refuses it: {words.strip().rstrip('.')}"[:200]


def _made(file: Path, network: Network, cycles: int, estimated_bytes: int) -> Made:
    import numpy as np

    with np.load(file, allow_pickle=False) as content:
        data = {name: content[name] for name in _NAMES}
    inputs, outputs = data["input_offset"], data["output_offset"]
    scratch, fast = int(data["scratch_size"]), int(data["scratch_fast_size"])
    regions = {int(data["scratch_region"]): 0, int(data["scratch_fast_region"]): _aligned(scratch)}
    regions[int(data["scratch_region"])] = 0
    if len(inputs) != len(network.input_bytes) or len(outputs) != len(network.output_bytes):
        raise NotForVela("Vela leaves a part of it to the CPU")
    return Made(
        commands=data["cmd_data"].tobytes(),
        constants=data["weight_data"].tobytes(),
        constants_region=int(data["weight_region"]),
        scratch_region=int(data["scratch_region"]),
        fast_region=int(data["scratch_fast_region"]),
        scratch_bytes=_aligned(scratch),
        fast_bytes=_aligned(fast) if fast != scratch or len(regions) > 1 else 0,
        inputs=_places(data["input_region"], inputs, regions),
        outputs=_places(data["output_region"], outputs, regions),
        cycles=cycles,
        estimated_bytes=estimated_bytes,
    )


_NAMES = (
    *("cmd_data", "weight_data", "weight_region"),
    *("scratch_region", "scratch_size", "scratch_fast_region", "scratch_fast_size"),
    *("input_region", "input_offset", "output_region", "output_offset"),
)


def _places(regions: Any, offsets: Any, starts: dict[int, int]) -> tuple[int, ...]:
    pairs = zip(regions.tolist(), offsets.tolist(), strict=True)
    return tuple(starts[int(region)] + int(offset) for region, offset in pairs)


def _aligned(size: int) -> int:
    return -(-size // 16) * 16


def _estimates(folder: Path) -> tuple[int, int]:
    """Return the cycles and the bytes of Vela's summary; 0 where it has none."""
    for file in folder.glob("*_summary_*.csv"):
        with file.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                moved = sum(float(row.get(f"{memory}_total_bytes") or 0) for memory in _MEMORIES)
                return round(float(row.get("cycles_total") or 0)), round(moved)
    return 0, 0


_MEMORIES = ("sram", "dram", "on_chip_flash", "off_chip_flash")
