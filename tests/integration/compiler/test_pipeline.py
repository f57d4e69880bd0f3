"""The pass list, phase by phase: what it reaches, what it writes down, how it fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.relax_modules import operators_in, relax_of
from support.source import ROOT

from edgekit.backends.offloading import compile_model
from edgekit.base.errors import BuildError, StorageError
from edgekit.base.events import Event, Events, StageEnded, StageProgress
from edgekit.base.tensors import TensorSpec
from edgekit.base.tvm_compat import load_tvm
from edgekit.compiler.compile import simplified
from edgekit.models.model import Model, ModelSource
from edgekit.profiles.cpu import Target, this_cpu
from edgekit.profiles.gpu import Gpu

SHAPE = (1, 3, 8, 8)
X = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")


def this_target() -> Target:
    return this_cpu()[1]


def lists() -> dict[str, Any]:
    """The phases of every list, by the word that docs/architecture.md has for it."""
    target = load_tvm().target.Target
    from edgekit.compiler.pipeline import (
        FOR_MACHINE,
        FOR_PROGRAM,
        for_c,
        for_cpu,
        for_gpu,
        for_libraries,
    )

    return {
        "libraries": for_libraries(frozenset()),
        "CPU": for_cpu(target(this_target().as_json())),
        "GPU": for_gpu(target(this_target().as_json()), Gpu("sm_87", 13).limits),
        "C": for_c(target("c")),
        "program": FOR_PROGRAM,
        "machine": FOR_MACHINE,
    }


def conv_net() -> onnx.ModelProto:
    """conv, batch norm, relu, twice; then a global pool."""
    random = np.random.default_rng(7)
    nodes, weights, source, channels = [], {}, "x", 3
    for step in range(2):
        weights[f"w{step}"] = random.standard_normal((4, channels, 3, 3)).astype("float32") / 4
        for part in ("gamma", "beta", "mean", "variance"):
            weights[f"{part}{step}"] = random.uniform(0.5, 2, 4).astype("float32")
        statistics = [f"{part}{step}" for part in ("gamma", "beta", "mean", "variance")]
        nodes += [
            helper.make_node("Conv", [source, f"w{step}"], [f"c{step}"], pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", [f"c{step}", *statistics], [f"n{step}"]),
            helper.make_node("Relu", [f"n{step}"], [f"r{step}"]),
        ]
        source, channels = f"r{step}", 4
    nodes.append(helper.make_node("GlobalAveragePool", [source], ["y"]))
    return onnx_model(nodes, {"x": SHAPE}, ["y"], weights)


def as_model(module: Any) -> Model:
    source = ModelSource(Path("test.onnx"), "onnx", "0" * 64)
    return Model(source, module, (TensorSpec("x", "float32", SHAPE),), (), ())


def run(executable: Any) -> np.ndarray:
    tvm = load_tvm()
    result = tvm.relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(X))
    array: np.ndarray = result.numpy()
    return array


def test_the_docs_have_every_phase_of_every_list() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+)` \| (.+) \| (.+) \|$", page, re.MULTILINE)
    told = [(name, each, reaches) for name, where, reaches in rows for each in where.split(", ")]

    for word, phases in lists().items():
        mine = [(name, reaches) for name, each, reaches in told if each == word]
        assert mine == [(phase.name, phase.reaches) for phase in phases]


def test_a_compiled_network_gives_the_oracle_its_numbers() -> None:
    network = conv_net()

    compiled = compile_model(as_model(relax_of(network)), this_target())

    expected = judged_by_onnxruntime(network, {"x": X})[0]
    np.testing.assert_allclose(run(compiled.code.executable), expected, rtol=1e-4, atol=1e-5)


def test_a_convolution_its_norm_and_its_activation_are_one_kernel() -> None:
    compiled = compile_model(as_model(relax_of(conv_net())), this_target())

    convolutions = [name for name in compiled.kernels if "convolution" in name]
    assert len(convolutions) == 2
    assert all("relu" in name for name in convolutions)
    assert not [name for name in compiled.kernels if name.startswith(("relu", "batch_norm"))]


def test_the_default_pipeline_still_fuses_nothing_on_a_cpu() -> None:
    """The reason why edgekit has a list of its own."""
    tvm = load_tvm()
    target = tvm.target.Target(this_target().as_json())
    with target:
        module = tvm.relax.get_pipeline("default")(relax_of(conv_net()))

    kernels = [
        variable.name_hint
        for variable, function in module.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    ]
    assert "relu" in kernels


def test_the_first_phase_leaves_no_batch_norm() -> None:
    module = simplified(relax_of(conv_net()))

    assert operators_in(module)[:-1] == ["nn.conv2d", "add", "nn.relu"] * 2


def test_the_module_after_each_phase_can_be_written_down(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "ir"

    compile_model(as_model(relax_of(conv_net())), this_target(), dump_ir=folder)

    phases = (*lists()["CPU"], *lists()["machine"])
    names = ["imported", *(phase.name for phase in phases)]
    assert sorted(file.name for file in folder.iterdir()) == [
        f"{number}-{name}.py" for number, name in enumerate(names)
    ]
    assert "batch_norm" in (folder / "0-imported.py").read_text()
    (simplified_file,) = folder.glob("*-simplify.py")
    assert "batch_norm" not in simplified_file.read_text()
    for file in folder.iterdir():
        compile(file.read_text(), file.name, "exec")


def test_dumping_where_nothing_can_be_written_says_so(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")

    with pytest.raises(StorageError):
        compile_model(as_model(relax_of(conv_net())), this_target(), dump_ir=in_the_way / "ir")


def test_progress_reaches_its_total() -> None:
    heard: list[Event] = []

    compile_model(as_model(relax_of(conv_net())), this_target(), events=Events(heard.append))

    steps = [event for event in heard if isinstance(event, StageProgress)]
    total = len(lists()["CPU"]) + 1
    assert [step.done for step in steps] == list(range(1, total + 1))
    assert {step.total for step in steps} == {total}
    (ended,) = (event for event in heard if isinstance(event, StageEnded))
    assert not ended.failed
    assert "kernels, " in ended.result
    assert ended.result.endswith("alive at once")
    assert [*ended.parts] == [step.detail for step in steps]
    assert sum(ended.parts.values()) <= ended.seconds


def test_a_failure_inside_tvm_names_the_phase() -> None:
    load_tvm()
    from tvm import relax

    # A convolution of something whose shape nobody knows can't become a loop nest.
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=4))
    weight = relax.const(np.ones((4, 3, 3, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.conv2d(x, weight))
        builder.emit_func_output(result)

    with pytest.raises(BuildError, match=r"TVM failed in (phase \w+|code generation): ") as failed:
        compile_model(as_model(builder.get()), this_target())

    assert failed.value.hint is not None
    assert "--dump-ir" in failed.value.hint


def test_a_target_that_llvm_does_not_know_is_a_build_error() -> None:
    target = Target("llvm", "no-such-triple", "no-such-cpu", (), 1)

    with pytest.raises(BuildError):
        compile_model(as_model(relax_of(conv_net())), target)
