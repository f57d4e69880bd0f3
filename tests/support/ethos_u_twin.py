"""A TFLite file through Vela alone, and its commands through the twin: no program of edgekit's."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from edgekit.backends import ethos_u
from edgekit.backends.ethos_u.configuration import ACCELERATORS, configuration_of
from edgekit.backends.ethos_u.network import Network
from edgekit.backends.ethos_u.stream import convolutions, rounding_once
from edgekit.backends.ethos_u.vela import Made, compile_network
from edgekit.backends.ethos_u.weights import Decoded, decode
from edgekit.cross.tools import run_tool
from edgekit.models.model import ModelSource, import_model
from edgekit.models.oracle import oracle_for
from support.ethos_u import SYSTEMS
from support.tflite_models import write_model

SOURCE = Path(ethos_u.__file__).parent / "source"
FLAGS = ("-O1", "-fPIC", "-shared", "-fsanitize=undefined", "-fno-sanitize-recover=all")
PARTS = ("edgekit_ethosu_registers.c", "edgekit_ethosu_twin.c")


class Region(ctypes.Structure):
    """edgekit_ethosu_region."""

    _fields_ = (
        ("commands", ctypes.c_void_p),
        ("commands_bytes", ctypes.c_uint32),
        ("constants", ctypes.c_void_p),
        ("constants_bytes", ctypes.c_uint32),
        ("constants_region", ctypes.c_uint8),
        ("scratch_region", ctypes.c_uint8),
        ("fast_region", ctypes.c_uint8),
        ("scratch_bytes", ctypes.c_uint32),
        ("fast_bytes", ctypes.c_uint32),
        ("weights", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
    )


@cache
def twin(folder: Path) -> ctypes.CDLL:
    sources = (str(SOURCE / part) for part in PARTS)
    command = ("gcc", *FLAGS, f"-I{SOURCE}", "-o", "twin.so", *sources)
    run_tool(command, folder=folder, doing="compile the twin")
    return ctypes.CDLL(str(folder / "twin.so"))


def differences(
    content: bytes, feeds: Mapping[str, np.ndarray], accelerator: str, once: bool, folders: Path
) -> int:
    """Return by how much the twin's results differ from LiteRT's; raise NotForVela.

    `once` is for matrix products: edgekit makes Vela's commands round them once.
    """
    source = write_model(folders, content)
    wanted = oracle_for(source).run(feeds)
    given, expected = _ordered(source, feeds, wanted)
    sizes = tuple(a.nbytes for a in given), tuple(a.nbytes for a in expected)
    system = SYSTEMS[accelerator.split("-")[1]]
    options = {"accelerator": accelerator, "system": system, "twin": True}
    made = compile_network(Network(content, (), *sizes, (), ()), configuration_of(options))
    if once:
        places = [operation.place for operation, _ in convolutions(made)]
        made = replace(made, commands=rounding_once(made.commands, places))
    found = _run(made, decode(made, ACCELERATORS[accelerator]), given, sizes[1], folders)
    pairs = zip(found, expected, strict=True)
    off = [got.view(right.dtype).astype(int) - right.reshape(-1) for got, right in pairs]
    return max(int(np.abs(each).max(initial=0)) for each in off)


def _ordered(
    source: ModelSource, feeds: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    model = import_model(source)
    return [feeds[i.name] for i in model.inputs], [wanted[o.name] for o in model.outputs]


def _run(
    made: Made,
    decoded: Decoded,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[int],
    folder: Path,
) -> list[np.ndarray]:
    commands = np.frombuffer(made.commands, np.uint8).copy()
    constants = np.frombuffer(made.constants or bytes(16), np.uint8).copy()
    places = np.array(decoded.places, np.uint32)
    memory = np.full(made.scratch_bytes + made.fast_bytes + 16, 0xA5, np.uint8)
    for start, array in zip(made.inputs, inputs, strict=True):
        memory[start : start + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
    region = Region(
        commands.ctypes.data,
        commands.size,
        constants.ctypes.data,
        len(made.constants),
        made.constants_region,
        made.scratch_region,
        made.fast_region,
        made.scratch_bytes,
        made.fast_bytes,
        decoded.weights.ctypes.data,
        places.ctypes.data,
    )
    status = twin(folder.parent).edgekit_ethosu_interpret(
        ctypes.byref(region), ctypes.c_void_p(memory.ctypes.data)
    )
    assert status == 0, f"the twin gives {status}"
    pairs = zip(made.outputs, outputs, strict=True)
    return [memory[start : start + size].copy() for start, size in pairs]
