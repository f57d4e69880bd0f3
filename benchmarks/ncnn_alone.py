"""A network as edgekit hands it to ncnn, for ncnn alone: its text graph and its weights, written
from the region that holds the whole network; and a library of ncnn and nothing else to run them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.backends.base import Region, Setting
from edgekit.backends.ncnn.layout import held
from edgekit.backends.ncnn.net import NetLayer, net_of
from edgekit.backends.ncnn.params import KINDS
from edgekit.cross.sources import build_library, built_in_recipe
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.cross.tools import run_tool
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain

MAGIC = 7767517
ARRAY = -23300


@dataclass(frozen=True)
class Written:
    """Paths and plain values: it travels to the process that runs it."""

    graph: Path
    weights: Path
    input: str
    shape: tuple[int, ...]
    outputs: tuple[str, ...]


def write(region: Region, folder: Path) -> Written:
    net = net_of(region)
    names = {blob: f"blob{number}" for blob, number in net.blobs.items()}
    lines = [str(MAGIC), f"{len(net.layers)} {len(names)}"]
    lines += [_line(number, layer, names) for number, layer in enumerate(net.layers)]
    graph, weights = folder / "network.param", folder / "network.bin"
    graph.write_text("\n".join(lines) + "\n", encoding="ascii")
    weights.write_bytes(net.weights("fp32"))
    (given,) = region.inputs
    outputs = tuple(names[blob] for blob in net.outputs)
    return Written(graph, weights, names[net.inputs[0]], held(given.shape), outputs)


def compile_alone(folder: Path) -> Path:
    """The very library that edgekit links into a model, behind four functions."""
    board = load_board("local")
    toolchain = load_toolchain(board.toolchain)
    library = build_library(built_in_recipe("ncnn"), board, toolchain)
    out = folder / "alone.so"
    command = (
        *find_cxx_compiler(toolchain).command,
        *("-std=c++17", "-O2", "-fPIC", "-shared", "-o", str(out)),
        *(word for path in library.include for word in ("-I", str(path))),
        str(Path(__file__).with_suffix(".cc")),
        *library.link,
    )
    run_tool(command, folder=folder, doing="compile ncnn alone")
    return out


def _line(number: int, layer: NetLayer, names: dict[str, str]) -> str:
    blobs = [names[blob] for blob in (*layer.reads, *layer.makes)]
    counts = [str(len(layer.reads)), str(len(layer.makes))]
    settings = [
        _setting(KINDS[layer.kind].numbers[name], value) for name, value in layer.settings.items()
    ]
    return " ".join([layer.kind, f"layer{number}", *counts, *blobs, *settings])


def _setting(number: int, value: Setting) -> str:
    if isinstance(value, tuple):
        return f"{ARRAY - number}={','.join([str(len(value)), *map(_number, value)])}"
    return f"{number}={_number(value)}"


def _number(value: Setting) -> str:
    return repr(float(value)) if isinstance(value, float) else str(int(value))  # type: ignore[arg-type]
