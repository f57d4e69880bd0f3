"""int8 kernels for ARM boards, under QEMU: the numbers of LiteRT, bit for bit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.int8_layers import LAYERS, Case, layer
from support.tflite_models import write_model

from edgekit.agent.build import build_agent
from edgekit.board import load_board
from edgekit.build import build
from edgekit.cross.toolchain import load_toolchain
from edgekit.errors import EdgekitError
from edgekit.request import make_request

BOARDS = {"rpi4": "cortex-a72", "rpi5": "cortex-a76"}
"""Without dot products, and with them; and what QEMU is told to be."""
C_LIBRARY = Path("/usr/aarch64-linux-gnu")


@pytest.fixture(scope="module")
def emulated() -> tuple[str, ...]:
    """The agent, and how it is run."""
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if emulator is None or not C_LIBRARY.is_dir():
        pytest.skip("needs qemu-user and the C library of a cross compiler for aarch64")
    try:
        agent = build_agent(load_toolchain(load_board("rpi4").toolchain), "aarch64")
    except EdgekitError as error:
        pytest.skip(error.message)
    (program,) = (file.path for file in agent.files if file.path.name == "edgekit-agent")
    return (emulator, "-L", str(C_LIBRARY), str(program))


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("case", LAYERS, ids=lambda case: f"{case.kind}-{case.channels}")
def test_a_layer_on_an_arm_cpu_gives_the_numbers_of_litert(
    case: Case, board: str, emulated: tuple[str, ...], tmp_path: Path
) -> None:
    source = write_model(tmp_path, layer(case))
    request = make_request(source.path, board, None, {}, {})
    bundle = build(request, tmp_path / "bundle", use_cache=False).bundle
    sample = tmp_path / "sample"
    shutil.copytree(bundle.path / "reference", sample)
    (sample / "output-0.npy").unlink()

    emulator, *agent = emulated
    program = [emulator, "-cpu", BOARDS[board], *agent]
    arguments = ["run", "--threads", "1", str(bundle.library), str(sample)]
    subprocess.run([*program, *arguments], check=True, capture_output=True)

    (expected,) = bundle.reference_outputs().values()
    np.testing.assert_array_equal(np.load(sample / "output-0.npy"), expected)
    wanted = "depthwise" if case.kind == "depthwise" else "int8"
    assert wanted in [kernel.rule for kernel in bundle.manifest.kernels]
