"""edgekit build for a microcontroller: what is in the bundle, and what is refused before it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.building import request_for, run_edgekit
from support.c_builds import SANITIZED, built_tree, make
from support.c_networks import Net, ds_cnn, several_inputs
from support.needs import needs

from edgekit.aot.generators import PORTABLE
from edgekit.base.errors import (
    BuildError,
    BundleError,
    MissingToolError,
    UnsupportedModelError,
    UsageError,
)
from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import Bundle, copy_bundle, open_bundle
from edgekit.profiles.board import Memory, load_board

pytestmark = needs("gcc-arm")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "key-words.onnx"
    onnx.save(ds_cnn(), file)
    return file


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "small.onnx"
    onnx.save(several_inputs(), file)
    return file


@pytest.fixture(scope="module")
def bundle(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("bundles") / "b"
    return build(request_for(model, "mps3-an547"), out, use_cache=False, isolated=False).bundle


def odd_model(path: Path, node: onnx.NodeProto, shape: tuple[int, ...], *constants: str) -> Path:
    """One node on one input `x`; the constants are the number 2."""
    graph = helper.make_graph(
        [node],
        "odd",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([2], np.int64), name) for name in constants],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def test_the_bundle_holds_a_tree_that_passes_its_own_test(bundle: Bundle, tmp_path: Path) -> None:
    assert bundle.tree is not None
    roles = {file.path: file.role for file in bundle.manifest.files}
    for name in ("key_words.h", "key_words.c", "key_words_weights.h", "README.md", "Makefile"):
        assert roles[f"c/{name}"] == "c-tree"
    assert "library" not in roles.values()
    copied = tmp_path / "c"
    subprocess.run(["cp", "-r", str(bundle.tree), str(copied)], check=True)
    tested = make(copied, "test", f"CFLAGS={' '.join(SANITIZED)}")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "words" in tested.stdout


def test_the_manifest_says_what_the_model_takes(bundle: Bundle) -> None:
    c = bundle.manifest.bare_metal
    assert c is not None
    assert bundle.manifest.board.kind == "baremetal"
    assert c.name == "key_words"
    assert c.arena_bound <= c.arena_bytes <= 1.02 * c.arena_bound
    assert c.arena_note == ""
    weights = 64 * 40 + 4 * (64 * 9 + 64 * 64) + 64 * 12
    biases = 64 + 4 * 2 * 64 + 12
    assert c.constant_bytes == 4 * (weights + biases)
    assert c.constant_bytes < c.flash_bytes < c.constant_bytes + 20_000
    assert 0 < c.stack_bytes < 2000
    assert [step.name for step in c.steps][:2] == ["conv_0", "depthwise_1"]
    assert all(step.maker == "tvm" for step in c.steps)
    assert max(step.alive_bytes for step in c.steps) == c.arena_bound
    assert any("operator" in other or "loop" in other for other in c.steps[0].others)


def test_the_firmware_is_an_elf_for_the_board(bundle: Bundle) -> None:
    assert bundle.firmware is not None
    assert bundle.firmware.read_bytes()[:4] == b"\x7fELF"


def test_a_firmware_that_is_replaced_reaches_no_board(bundle: Bundle, tmp_path: Path) -> None:
    """Neither before a board gets it, nor while the tool that writes it starts."""
    copy_bundle(bundle, tmp_path / "copy")
    opened = open_bundle(tmp_path / "copy")
    assert opened.firmware is not None
    whole = opened.firmware.read_bytes()
    with opened.held_firmware() as held:
        opened.firmware.write_bytes(whole[:-1])
        assert held.read_bytes() == whole
    with (
        pytest.raises(BundleError, match=r"firmware\.elf changed after the bundle was opened"),
        opened.held_firmware(),
    ):
        pass


def test_the_same_build_gives_the_same_bytes(bundle: Bundle, model: Path, tmp_path: Path) -> None:
    again = build(request_for(model, "mps3-an547"), tmp_path / "b", use_cache=False).bundle
    assert bundle.manifest.reproducible
    assert again.digest == bundle.digest


def test_a_bundle_of_c_has_no_library_to_load(bundle: Bundle) -> None:
    with pytest.raises(BundleError, match="holds C"):
        _ = bundle.library


def test_the_second_build_comes_from_the_cache_and_another_prefix_does_not(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    request = request_for(small, "mps2-an386")
    assert not build(request, tmp_path / "a", isolated=False).from_cache
    assert build(request, tmp_path / "b").from_cache
    renamed = build(replace(request, prefix="other"), tmp_path / "c", isolated=False)
    assert not renamed.from_cache
    assert (tmp_path / "c/c/other.h").is_file()
    assert "other_run" in (tmp_path / "c/c/other.h").read_text()


def test_a_model_that_needs_more_memory_than_there_is_is_refused(
    model: Path, tmp_path: Path
) -> None:
    """Before a compiler runs: this one is not there."""
    request = _with_memory(request_for(model, "mps2-an386"), Memory(32 << 10, 4 << 20))
    with pytest.raises(BuildError, match="more than the 32,768 that mps2-an386") as caught:
        build(request, tmp_path / "b", use_cache=False, isolated=False)
    assert "int8" in (caught.value.hint or "")
    assert "shape" not in (caught.value.hint or ""), "the file's shapes are fixed"
    assert "KiB" not in caught.value.message, "one unit for all numbers"
    assert any("pointwise_1" in detail for detail in caught.value.details)
    assert not (tmp_path / "b").exists()


def test_a_model_that_needs_more_flash_than_there_is_is_refused(
    model: Path, tmp_path: Path
) -> None:
    request = _with_memory(request_for(model, "mps2-an386"), Memory(1 << 20, 64 << 10))
    with pytest.raises(BuildError, match="of flash") as caught:
        build(request, tmp_path / "b", use_cache=False, isolated=False)
    assert any("of constants" in detail for detail in caught.value.details)


def test_a_compiler_that_is_not_installed_is_named_with_what_installs_it(
    small: Path, tmp_path: Path
) -> None:
    request = request_for(small, "mps2-an386")
    tools = replace(request.toolchain.tools, cc="arm-none-eabi-nosuch")
    missing = replace(request.toolchain, tools=tools)
    with pytest.raises(MissingToolError, match="arm-none-eabi-nosuch") as caught:
        build(replace(request, toolchain=missing), tmp_path / "b")
    assert "apt-get install" in (caught.value.hint or "")


def test_what_has_no_c_is_refused_by_the_name_of_its_layer(tmp_path: Path) -> None:
    sums = helper.make_node("Neg", ["x"], ["y"], name="the_sums")
    file = odd_model(tmp_path / "m.onnx", sums, (1, 3, 3))
    with pytest.raises(UnsupportedModelError, match="the layer the_sums has no C") as caught:
        built_tree(file, tmp_path / "tree", offers=[PORTABLE])  # which has integer kernels alone
    assert "bare-metal.md" in (caught.value.hint or "")


def test_a_tensor_without_an_element_is_refused(tmp_path: Path) -> None:
    file = odd_model(tmp_path / "m.onnx", helper.make_node("Relu", ["x"], ["y"]), (0, 3))
    with pytest.raises(UnsupportedModelError, match="no element"):
        build(request_for(file, "mps2-an386"), tmp_path / "b", use_cache=False, isolated=False)


def test_shapes_that_nothing_bounds_are_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["p"], name="where"),
        helper.make_node("Reshape", ["x", "p"], ["y"], name="open"),
    ]
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opset = [helper.make_opsetid("", 17)]
    file = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), file)
    with pytest.raises(UnsupportedModelError) as caught:
        build(request_for(file, "mps2-an386"), tmp_path / "b", use_cache=False, isolated=False)
    assert "Reshape" in caught.value.message
    assert caught.value.hint
    assert not (tmp_path / "b").exists()


def test_half_floats_are_refused(tmp_path: Path) -> None:
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT16)
    net = Net()
    net.nodes.append(cast)
    net.node("Exp", ("y",), "grown")
    graph = helper.make_graph(
        net.nodes,
        "half",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))],
        [helper.make_tensor_value_info("grown", TensorProto.FLOAT16, None)],
    )
    opset = [helper.make_opsetid("", 17)]
    file = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), file)
    with pytest.raises(UnsupportedModelError, match="float16"):
        build(request_for(file, "mps2-an386"), tmp_path / "b", use_cache=False, isolated=False)


def test_a_library_that_there_are_no_kernels_of_is_refused(small: Path, tmp_path: Path) -> None:
    arguments = ("build", str(small), "--board", "mps2-an386", "--offload", "ncnn")
    ran = run_edgekit(*arguments, folder=tmp_path)
    assert ran.code == 2
    assert "can't use kernels of ncnn" in ran.err


def test_the_command_tells_what_the_model_takes(small: Path, tmp_path: Path) -> None:
    ran = run_edgekit(
        *("build", str(small), "--board", "stm32f746g-disco", "--prefix", "net", "-o", "out"),
        folder=tmp_path,
        extra={"EDGEKIT_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert ran.code == 0, ran.err
    for word in ("arena", "flash", "stack", "steps"):
        assert word in ran.out
    assert open_bundle(tmp_path / "out").manifest.bare_metal is not None
    assert (tmp_path / "out/c/net.c").is_file()


def test_the_memory_map_is_told_drawn_and_part_of_the_document(small: Path, tmp_path: Path) -> None:
    arguments = ("build", str(small), "--board", "stm32f405", "-o", "out", "--memory-map")
    extra = {"EDGEKIT_CACHE_DIR": str(tmp_path / "cache")}
    ran = run_edgekit(*arguments, folder=tmp_path, extra=extra)
    assert ran.code == 0, ran.err
    for words in ("alive at one step", "firmware", "nrf52840-dk", "memory-map.svg"):
        assert words in ran.out
    again = run_edgekit(*arguments, "--json", folder=tmp_path, extra=extra)
    document = json.loads(again.out)
    fits = {board["board"]: board["fits"] for board in document["memory_map"]["boards"]}
    assert fits["stm32f405"]
    bundle = open_bundle(tmp_path / "out")
    assert [file.path for file in bundle.manifest.files if file.role == "memory-map"] == [
        "memory-map.svg"
    ]
    assert "<title>" in (tmp_path / "out/memory-map.svg").read_text()


def test_a_memory_map_of_a_board_that_loads_libraries_is_refused(
    small: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="memory-map"):
        build(request_for(small), tmp_path / "b", with_memory_map=True)


def test_buffers_that_are_needed_at_one_step_never_overlap(bundle: Bundle) -> None:
    """But for results that take the place of what they are made from, in that very step."""
    c = bundle.manifest.bare_metal
    assert c is not None
    assert max(b.offset + b.bytes for b in c.buffers) <= c.arena_bytes
    for a, b in combinations(c.buffers, 2):
        apart = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
        one_after_the_other = a.last < b.first or b.last < a.first
        in_place = a.offset == b.offset and (a.last == b.first or b.last == a.first)
        assert apart or one_after_the_other or in_place, (a, b)


def _with_memory(request: BuildRequest, memory: Memory) -> BuildRequest:
    return replace(request, board=replace(request.board, memory=memory))


@pytest.fixture(scope="module")
def int8_model(model: Path) -> Path:
    """The same in int8; with ranges of noise, for which the C does not care."""
    ran = run_edgekit("quantize", model.name, "--random", "4", folder=model.parent)
    assert ran.code == 0, ran.err
    return model.with_name(f"{model.stem}-int8.onnx")


@needs("clang")
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
def test_clang_compiles_the_integer_kernels_of_each_cpu(
    board: str, int8_model: Path, tmp_path: Path
) -> None:
    made = build(
        request_for(int8_model, board), tmp_path / "b", use_cache=False, isolated=False
    ).bundle
    assert made.tree is not None
    c = made.manifest.bare_metal
    assert c is not None
    makers = {step.maker for step in c.steps}
    assert makers & {"edgekit dsp", "edgekit mve"}, "these are the kernels it is about"
    newlib = "/usr/lib/arm-none-eabi/include"
    for language in (("-std=c99",), ("-x", "c++", "-std=c++17")):
        cpu = [flag for flag in load_board(board).cpu.compile_flags if flag != "-mfpu=auto"]
        words = ["clang", "--target=arm-none-eabi", "-mthumb", *cpu]
        words += ["-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{newlib}", *language]
        words += ["-c", f"{c.name}.c", "-o", str(tmp_path / "x.o")]
        done = subprocess.run(words, cwd=made.tree, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
