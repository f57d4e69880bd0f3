"""Programs for CPUs that this machine has not, run by QEMU's user emulators."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import request_for
from support.needs import needs
from support.onnx_models import onnx_model
from support.source import ROOT

from edgekit.building.build import build
from edgekit.profiles.architecture import architectures
from edgekit.profiles.board import Board, load_board, toolchain_of

RANDOM = np.random.default_rng(3)
DRIVER = Path(__file__).with_name("run_program.c")
SOURCES = ROOT / "edgekit/aot/native/source"
CPUS = {"visionfive2": "sifive-u54"}


def network(path: Path) -> Path:
    """Each family of schedules: a convolution, a depthwise one, products, and a softmax."""

    def weight(*shape: int) -> np.ndarray:
        scale = np.sqrt(np.prod(shape[1:]))
        return (RANDOM.standard_normal(shape) / scale).astype("float32")

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["d"], pads=[1, 1, 1, 1], group=24),
        helper.make_node("Conv", ["d", "w3"], ["p"]),
        helper.make_node("Sigmoid", ["p"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w4"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    weights = {
        "w1": weight(24, 3, 3, 3),
        "b1": weight(24),
        "w2": weight(24, 1, 3, 3),
        "w3": weight(33, 24, 1, 1),
        "w4": weight(33, 10),
    }
    onnx.save(onnx_model(nodes, {"x": [1, 3, 19, 19]}, ["y"], weights), path)
    return path


@pytest.mark.parametrize(
    ("name", "instruction"),
    [
        pytest.param("visionfive2", "fmadd.s", marks=needs("g++-riscv64", "qemu-user")),
        pytest.param("bpi-f3", "vfmacc.vf", marks=needs("g++-riscv64", "qemu-user")),
        pytest.param("rpi2", "vmul.f32\tq", marks=needs("g++-armhf", "qemu-user")),
    ],
)
def test_a_program_computes_the_same_on_another_architecture(
    name: str, instruction: str, tmp_path: Path
) -> None:
    board = load_board(name)
    request = request_for(network(tmp_path / "model.onnx"), name)
    bundle = build(request, tmp_path / "bundle", use_cache=False, isolated=False).bundle
    program = emulated(board, tmp_path)
    for vector in ("random", "zeros", "largest"):
        case = bundle.path / "reference" / vector
        expected = np.load(case / "output-0.npy")
        np.load(case / "input-0.npy").tofile(tmp_path / "x.raw")
        files = (bundle.library, tmp_path / "x.raw", tmp_path / "y.raw")
        subprocess.run([*program, *map(str, files)], check=True)
        made = np.fromfile(files[2], expected.dtype).reshape(expected.shape)
        np.testing.assert_allclose(made, expected, rtol=1e-3, atol=1e-5)
    assert instruction in code_of(board, bundle.library)


def emulated(board: Board, folder: Path) -> list[str]:
    """Return the command of the driver, compiled for the board, in QEMU's user emulator."""
    toolchain = toolchain_of(board)
    driver = folder / "driver"
    compiler = [toolchain.tools.cc, *board.cpu.compile_flags, "-I", str(SOURCES)]
    subprocess.run([*compiler, str(DRIVER), "-o", str(driver), "-ldl"], check=True)
    qemu = architectures()[board.cpu.arch].qemu.user
    program = shutil.which(f"{qemu}-static") or shutil.which(qemu)
    assert program is not None and board.twin is not None
    cpu = CPUS.get(board.name, board.twin.cpu)
    return [program, "-cpu", cpu, "-L", f"/usr/{toolchain.triple}", str(driver)]


def code_of(board: Board, library: Path) -> str:
    tool = f"{toolchain_of(board).triple}-objdump"
    return subprocess.run([tool, "-d", str(library)], capture_output=True, text=True).stdout
