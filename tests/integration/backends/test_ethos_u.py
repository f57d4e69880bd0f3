"""Regions that Vela compiles for an Ethos-U, run by the twin, give LiteRT's numbers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support import int8_layers
from support.ethos_u import OnNpu, on_npu, wrong
from support.integer_cases import CASES, Dice, drawn
from support.needs import needs
from support.random_int8 import Growing
from support.tflite_models import Op, T, constant, tflite_bytes, write_model

from benchmarks.model_zoo import MODELS, ZooModel, fetch
from edgekit.aot.kernel import AbsentGenerator
from edgekit.aot.operators import NpuRegion
from edgekit.backends.ethos_u import BACKEND, configuration
from edgekit.backends.ethos_u.stream import OP_CONV, Operation, operations
from edgekit.base.errors import ProjectError
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import import_model, open_model

pytestmark = needs("ethos-u")

OPERATORS = {
    "CONV_2D": "Conv2D",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2D",
    "FULLY_CONNECTED": "FullyConnected",
    "ADD": "Add",
    "SUB": "Add",
    "MUL": "Multiply",
    "AVERAGE_POOL_2D": "AveragePool",
    "MAX_POOL_2D": "MaxPool",
    "MEAN": "Mean",
    "PAD": "Pad",
    "CONCATENATION": "Concatenate",
    "TANH": "Lookup",
    "LOGISTIC": "Lookup",
    "LEAKY_RELU": "Lookup",
    "HARD_SWISH": "Lookup",
    "QUANTIZE": "Lookup",
}
"""The operators that the NPU takes, and edgekit's names of them."""
FAMILIES = ("ethos-u55-128", "ethos-u65-512", "ethos-u85-256")
"""One NPU with one core, one with two streams of weights, and one with other registers."""
ON_U85 = ("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "AVERAGE_POOL_2D")
MLPERF = [model for model in MODELS if model.name.startswith("MLPerf Tiny")]
DRIVER = """\
#include <stddef.h>
#include <stdint.h>
struct ethosu_driver;
struct ethosu_driver *ethosu_reserve_driver(void);
void ethosu_release_driver(struct ethosu_driver *driver);
int ethosu_invoke_v3(struct ethosu_driver *driver, const void *commands, const int bytes,
    uint64_t *const base, const size_t *base_size, const int count, void *argument);
"""
"""What the starter uses of Arm's ethosu_driver.h."""
STAND_IN = """\
#include "edgekit_ethosu.h"
#include "ethosu_driver.h"
struct ethosu_driver { int reserved; };
static struct ethosu_driver driver;
struct ethosu_driver *ethosu_reserve_driver(void) { driver.reserved++; return &driver; }
void ethosu_release_driver(struct ethosu_driver *given) { given->reserved--; }
int ethosu_invoke_v3(struct ethosu_driver *given, const void *commands, const int bytes,
    uint64_t *const base, const size_t *base_size, const int count, void *argument)
{
    if (given->reserved != 1 || argument != NULL || count != 2) return 1;
    if ((uintptr_t)commands % 16 || base[0] % 16 || base[1] % 16 || base_size[1] == 0) return 2;
    const unsigned char *head = (const unsigned char *)commands;
    return bytes > 4 && head[0] == 'C' && head[3] == '1' ? 77 : 3;
}
"""
"""Checks what the driver is given, and reports an error of its own."""


def check_operator(
    folder: Path, name: str, seeds: Iterable[int], accelerator: str = FAMILIES[0]
) -> None:
    """One model of an operator with random shapes, quantisations and windows, for each seed."""
    tensors: list[T] = []
    operators: list[Op] = []
    feeds: dict[str, np.ndarray] = {}
    for seed in seeds:
        dice = Dice(seed * 1000 + len(name))
        parts, operator = CASES[name](dice)
        renamed = {tensor.name: f"s{seed}_{tensor.name}" for tensor in parts}
        if any(len(t.shape) == 4 and t.shape[0] > 1 and t.data is None for t in parts):
            continue  # A batch is no integer operator of edgekit's.
        for tensor in parts:
            tensors.append(T(**{**vars(tensor), "name": renamed[tensor.name]}))
            if tensor.data is None and tensor.name not in operator.outputs:
                feeds[renamed[tensor.name]] = dice.stored(tensor.shape)
        inputs = tuple(renamed[given] for given in operator.inputs)
        outputs = tuple(renamed[given] for given in operator.outputs)
        operators.append(Op(operator.name, inputs, outputs, operator.options))
    results = [name for operator in operators for name in operator.outputs]
    source = write_model(folder, tflite_bytes(tensors, operators, list(feeds), results))

    npu = on_npu(source, accelerator)

    assert OPERATORS[name] in npu.operators, npu.left
    assert not wrong(source, npu, feeds)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_at_random_shapes(tmp_path: Path, name: str) -> None:
    check_operator(tmp_path, name, range(6))


@pytest.mark.parametrize("name", ON_U85)
def test_an_operator_on_an_u85(tmp_path: Path, name: str) -> None:
    check_operator(tmp_path, name, range(6), "ethos-u85-256")


@pytest.mark.operators
@pytest.mark.parametrize("accelerator", FAMILIES)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("seed", range(6, 206, 8))
def test_an_operator_at_many_random_shapes(
    tmp_path: Path, name: str, seed: int, accelerator: str
) -> None:
    check_operator(tmp_path, name, range(seed, seed + 8), accelerator)


@settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    data=st.data(),
    shape=st.tuples(st.just(1), st.integers(2, 9), st.integers(2, 9), st.integers(1, 40)),
    length=st.integers(2, 9),
    accelerator=st.sampled_from(FAMILIES),
)
def test_random_networks(
    tmp_path: Path,
    data: st.DataObject,
    shape: tuple[int, ...],
    length: int,
    accelerator: str,
) -> None:
    network = Growing(data, shape)
    for _ in range(length):
        network.grow()
    folder = tmp_path / f"example{len(list(tmp_path.iterdir()))}"  # A library is loaded once.
    folder.mkdir()
    source = write_model(folder, network.content())

    npu = on_npu(source, accelerator)

    feeds = reference_inputs(import_model(source).inputs, 3)
    assert not wrong(source, npu, feeds)


@pytest.mark.models
@pytest.mark.parametrize("accelerator", FAMILIES)
@pytest.mark.parametrize("model", MLPERF, ids=lambda model: model.name)
def test_mlperf_tiny(tmp_path: Path, model: ZooModel, accelerator: str) -> None:
    path = Path(shutil.copy(fetch(model), tmp_path))
    source = open_model(path)

    npu = on_npu(source, accelerator)

    assert set(npu.left) <= {"Quantize", "Softmax", "Dequantize"}
    operators = [type(step.operator) for step in npu.compiled.plan.program.steps]
    assert operators.count(NpuRegion) == 1
    feeds = reference_inputs(import_model(source).inputs, 7)
    assert not wrong(source, npu, feeds)


def check_layer(folder: Path, case: int8_layers.Case, accelerator: str) -> list[Operation]:
    """Compare a layer's numbers, and return what the NPU does for it."""
    source = write_model(folder, int8_layers.layer(case))

    npu = on_npu(source, accelerator)

    assert len(npu.operators) == 1, npu.left
    assert not wrong(source, npu, reference_inputs(import_model(source).inputs, 3))
    return commands_of(npu)


def commands_of(npu: OnNpu) -> list[Operation]:
    steps = (step.operator for step in npu.compiled.plan.program.steps)
    regions = [step.compiled for step in steps if isinstance(step, NpuRegion)]
    return [operation for region in regions for operation in operations(region.made.commands)]


@pytest.mark.parametrize(
    ("accelerator", "place"),
    list(zip(sorted(configuration.ACCELERATORS), (0, 3, 4, 6, 8, 1, 4, 3, 0, 6, 8), strict=True)),
)
def test_each_accelerator_has_an_order_of_weights(
    tmp_path: Path, accelerator: str, place: int
) -> None:
    check_layer(tmp_path, int8_layers.LAYERS[place], accelerator)


@pytest.mark.operators
@pytest.mark.parametrize("accelerator", configuration.ACCELERATORS)
@pytest.mark.parametrize("case", int8_layers.LAYERS)
def test_layers_on_all_accelerators(
    tmp_path: Path, accelerator: str, case: int8_layers.Case
) -> None:
    check_layer(tmp_path, case, accelerator)


@pytest.mark.parametrize(
    ("case", "accelerator", "is_fast", "is_sparse"),
    [
        (int8_layers.Case("dense", 320, 200), "ethos-u85-512", True, False),
        (int8_layers.LAYERS[3], "ethos-u85-128", False, True),
    ],
)
def test_formats_of_weights(
    tmp_path: Path, case: int8_layers.Case, accelerator: str, is_fast: bool, is_sparse: bool
) -> None:
    """Vela chooses a format that an U85 decodes at once, or one whose zeros it skips."""
    done = check_layer(tmp_path, case, accelerator)

    found = next(each for each in done if each.command == OP_CONV)
    assert (found.has_fast_weights, found.has_sparse_weights) == (is_fast, is_sparse)


def test_a_sum_is_chained_to_a_convolution(tmp_path: Path) -> None:
    """An U85 gives the results of a convolution to a sum without a memory between them."""
    random = np.random.default_rng(6)
    window = {"table": "Conv2DOptions", "padding": 0, "strideH": 1, "strideW": 1}
    bias = random.integers(-99, 99, 20).astype("int32")
    content = tflite_bytes(
        [
            T("x", (1, 9, 7, 20), "int8", scale=0.01, zero=3),
            constant("w", random.integers(-127, 127, (20, 3, 3, 20)).astype("int8"), scale=0.01),
            constant("b", bias, scale=0.0001),
            T("y", (1, 9, 7, 20), "int8", scale=0.03, zero=-5),
            T("r", (1, 9, 7, 20), "int8", scale=0.04),
        ],
        [
            Op("CONV_2D", ("x", "w", "b"), ("y",), window),
            Op("ADD", ("y", "x"), ("r",), {"table": "AddOptions"}),
        ],
        ["x"],
        ["r"],
    )
    source = write_model(tmp_path, content)

    npu = on_npu(source, "ethos-u85-256")

    assert not wrong(source, npu, reference_inputs(import_model(source).inputs, 3))
    assert any(operation.is_chained for operation in commands_of(npu))


def test_arm_s_driver_starts_a_region_where_its_header_is(tmp_path: Path) -> None:
    cases = (drawn("CONV_2D", seed) for seed in range(9))
    case = next(case for case in cases if case.feeds["x"].shape[0] == 1)
    npu = on_npu(write_model(tmp_path, case.content))
    (tmp_path / "ethosu_driver.h").write_text(DRIVER)
    (tmp_path / "driver.c").write_text(STAND_IN)

    with pytest.raises(AssertionError, match=r"the run gives 1$"):  # The step that ends with 77.
        npu.run(case.feeds, "-I.", "driver.c")


def test_without_vela_all_steps_stay_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "_MODULES", {"ethosu_absent": "ethos-u-vela"})

    generator = BACKEND.generator({"accelerator": "ethos-u55-256"})

    assert isinstance(generator, AbsentGenerator)
    assert "ethos-u-vela is not installed" in generator.reason


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"accelerator": "ethos-u99"}, "'ethos-u99', which Vela does not know"),
        ({"acelerator": "ethos-u55-128"}, "no option 'acelerator'"),
        ({"twin": "yes"}, "twin is 'yes'"),
        ({"memory_mode": "Shared"}, "memory_mode is 'Shared', which Vela's Arm/vela.ini does not"),
    ],
)
def test_options_are_checked(options: dict[str, str | bool], problem: str) -> None:
    with pytest.raises(ProjectError, match=problem):
        BACKEND.require(options)


@pytest.mark.parametrize(
    ("accelerator", "roundings"), [("ethos-u55-128", [0, 2]), ("ethos-u85-256", [0, 1])]
)
def test_products_in_a_region_round_once(
    tmp_path: Path, accelerator: str, roundings: list[int]
) -> None:
    """The commands of a convolution keep LiteRT's two roundings, those of the product have one."""
    random = np.random.default_rng(4)
    bias = constant("b", random.integers(-99, 99, 6).astype("int32"), scale=0.0001)
    other = constant("c", random.integers(-99, 99, 5).astype("int32"), scale=0.0001)
    window = {"table": "Conv2DOptions", "padding": 1, "strideH": 1, "strideW": 1}
    content = tflite_bytes(
        [
            T("x", (1, 3, 3, 4), "int8", scale=0.01),
            constant("w", random.integers(-127, 127, (6, 3, 3, 4)).astype("int8"), scale=0.01),
            bias,
            T("y", (1, 1, 1, 6), "int8", scale=0.02),
            constant("v", random.integers(-127, 127, (5, 6)).astype("int8"), scale=0.005),
            other,
            T("r", (1, 5), "int8", scale=0.02),
        ],
        [
            Op("CONV_2D", ("x", "w", "b"), ("y",), window),
            Op("FULLY_CONNECTED", ("y", "v", "c"), ("r",), {"table": "FullyConnectedOptions"}),
        ],
        ["x"],
        ["r"],
    )

    npu = on_npu(write_model(tmp_path, content), accelerator)

    found = [operation for operation in commands_of(npu) if operation.command == OP_CONV]
    assert [operation.rounding for operation in found] == roundings


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u85-256"])
def test_a_refused_step_stays_in_c_between_two_regions(tmp_path: Path, accelerator: str) -> None:
    """An Ethos-U55 resizes by powers of two, an U85 by three: Vela's words are in the report."""
    random = np.random.default_rng(5)
    weights = random.integers(-127, 127, (4, 1, 1, 4)).astype("int8")
    narrow = {"table": "Conv2DOptions", "padding": 1, "strideH": 1, "strideW": 1}
    table = "ResizeNearestNeighborOptions"
    bias = random.integers(-99, 99, 4).astype("int32")
    content = tflite_bytes(
        [
            T("x", (1, 12, 12, 4), "int8", scale=0.01),
            constant("w", weights, scale=0.01),
            constant("b", bias, scale=0.0001),
            T("y", (1, 12, 12, 4), "int8", scale=0.02),
            constant("s", np.array([36, 36], "int32")),
            T("z", (1, 36, 36, 4), "int8", scale=0.02),
            constant("c", bias, scale=0.0002),
            T("r", (1, 36, 36, 4), "int8", scale=0.02),
        ],
        [
            Op("CONV_2D", ("x", "w", "b"), ("y",), narrow),
            Op("RESIZE_NEAREST_NEIGHBOR", ("y", "s"), ("z",), {"table": table}),
            Op("CONV_2D", ("z", "w", "c"), ("r",), narrow),
        ],
        ["x"],
        ["r"],
    )
    source = write_model(tmp_path, content)

    npu = on_npu(source, accelerator)

    if accelerator == "ethos-u55-128":
        assert npu.operators == ("Conv2D", "Conv2D")
        assert npu.left == {"ResizeNearest": "Vela leaves RESIZE_NEAREST_NEIGHBOR to the CPU"}
    else:
        assert npu.operators == ("Conv2D", "ResizeNearest", "Conv2D")
    assert not wrong(source, npu, reference_inputs(import_model(source).inputs, 3))
