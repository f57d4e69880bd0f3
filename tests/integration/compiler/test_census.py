"""The census of kernels: what it counts, what it calls a fault, and that a stopped run goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from benchmarks import census
from benchmarks.census_networks import drawn, tabled
from benchmarks.cpu import lanes
from benchmarks.roof import Copying, Roof, measure_roof
from edgekit.compiler.work import Work

ROOF = Roof(1, 1e9, 1e9, 4e9, (Copying(1 << 20, 2e9), Copying(1 << 26, 1e9)))
KERNEL = census.Kernel("conv_0", ("fused_conv",), ("/Conv",), "product", 1e-3, 0.5, 5e-4)


def test_every_network_has_a_name_of_its_own() -> None:
    names = [name for name, _ in (*tabled(), *drawn(40, 0))]

    assert len(set(names)) == len(names) > 150


def test_a_seed_draws_the_same_networks_again_and_another_one_others() -> None:
    assert [name for name, _ in drawn(12, 1)] == [name for name, _ in drawn(12, 1)]
    assert [name for name, _ in drawn(12, 1)] != [name for name, _ in drawn(12, 2)]


def test_the_roof_is_arithmetic_of_its_type_or_the_copy_of_as_many_bytes() -> None:
    assert ROOF.seconds(Work(flops=1000)) == pytest.approx(1e-6)
    assert ROOF.seconds(Work(integers=1000)) == pytest.approx(0.25e-6)
    assert ROOF.seconds(Work(flops=10, bytes=1 << 20)) == pytest.approx((1 << 20) / 2e9)
    assert ROOF.seconds(Work(bytes=1 << 30)) == pytest.approx((1 << 30) / 1e9)


def test_this_machine_has_a_roof() -> None:
    roof = measure_roof(1, lanes())

    assert 1e8 < roof.flops < 1e13
    assert 1 / 4 < roof.integers / roof.flops < 32
    assert all(1e8 < copy.bytes < 1e13 for copy in roof.copied)


def test_a_fault_is_a_kernel_without_a_rule_or_far_below_the_roof_in_much_of_its_network() -> None:
    assert not KERNEL.fault
    assert not replace(KERNEL, least=1e-5, share=0.02).fault
    assert replace(KERNEL, least=1e-5).fault == "far below the roof"
    assert replace(KERNEL, rule="none").fault == "no rule"
    assert not replace(KERNEL, rule="none", kernels=("sorted",)).fault


def test_a_dynamically_quantised_product_is_counted_in_integers_and_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(census, "measure_roof", lambda threads, lanes: ROOF)
    file = tmp_path / "census.json"
    command = ["--filter", "dynamic int8 product 64x300x7", "--json", str(file)]

    assert census.main(command) == 0

    (net,) = json.loads(file.read_text())["networks"]
    product = next(kernel for kernel in net["kernels"] if kernel["rule"] == "int8")
    assert product["least"] >= 2 * 64 * 300 * 7 / ROOF.integers
    assert all(0 < kernel["share"] <= 1 for kernel in net["kernels"])
    first = capsys.readouterr()
    assert "Kernels that lose most time" in first.out
    assert "1/1 dynamic int8 product" in first.err
    assert census.main(command) == 0
    assert "1/1" not in capsys.readouterr().err


def test_a_network_that_fails_is_told_of_and_the_others_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> None:
        path.write_bytes(b"no model")

    def whole(path: Path) -> None:
        onnx.save(_relu(), path)

    found = [("broken", broken), ("whole", whole)]
    monkeypatch.setattr(census, "tabled", lambda: iter(found))
    monkeypatch.setattr(census, "MODELS", ())
    monkeypatch.setattr(census, "measure_roof", lambda threads, lanes: ROOF)

    assert census.main(["--drawn", "0", "--json", str(tmp_path / "run.json")]) == 1

    said = capsys.readouterr()
    assert "broken: " in said.err
    assert "1 network, 1 kernel" in said.out


def _relu() -> onnx.ModelProto:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 64))
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 64))
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "relu", [value], [result])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
