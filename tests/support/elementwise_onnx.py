"""Every elementwise operator of ONNX with every type that it takes, as cases of one node."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from support.elementwise import Verdict, deployed, dtype_of, in_range, judged, values

TYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)
INTEGERS = frozenset(name for name in TYPES if "int" in name)
IN_ONNX = {"float32": "float", "float64": "double"}
OPSET, NEWEST = 22, 28
CASES_A_MODEL = 48


@dataclass(frozen=True)
class Case:
    """One node."""

    operator: str
    dtypes: tuple[str, ...]
    """Those of its inputs."""
    form: str = "tensors"
    """The form of the last operand: a tensor, a scalar at run time, or a constant scalar."""
    attributes: tuple[tuple[str, Any], ...] = ()
    opset: int = OPSET
    narrow: str = ""
    """The type that its values were rounded to before."""

    def __str__(self) -> str:
        words = [self.operator, *self.dtypes, self.form]
        return "-".join([*words, *(f"{name}={value}" for name, value in self.attributes)])


ROUNDING_STEPS = frozenset({"Gelu", "Mish", "Sign", "Softplus"})
IN_FLOAT32 = frozenset({"Gelu", "Shrink"})
"""What the oracles compute in float32 where the type is float64."""

UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu"),
    *("Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "Identity"),
    *("IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round"),
    *("Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish"),
    *("Tan", "Tanh", "ThresholdedRelu"),
)
BINARY = (
    *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater"),
    *("GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul", "Or", "PRelu", "Sub", "Xor"),
)
VARIADIC = ("Mean", "Sum")


def cases() -> Iterator[Case]:
    """All of them, in the order of their operators."""
    for operator in UNARY:
        yield from _typed(operator, 1, ("tensors",))
    for operator in BINARY:
        yield from _typed(operator, 2, ("tensors", "scalar", "constant"))
    for operator in VARIADIC:
        yield from _typed(operator, 3, ("tensors",))
    for approximate in ("none", "tanh"):
        yield from _typed("Gelu", 1, ("tensors",), approximate=approximate)
    for fmod in (0, 1):
        yield from _typed("Mod", 2, ("tensors", "constant"), fmod=fmod)
    for direction in ("LEFT", "RIGHT"):
        yield from _typed("BitShift", 2, ("tensors", "scalar", "constant"), direction=direction)
    for sign in ("positive", "negative"):
        yield from _typed("IsInf", 1, ("tensors",), **{f"detect_{sign}": 0})
    for dtype in allowed("Pow"):
        for other in sorted({dtype, "float32", "int32", "int64", "uint8"}):
            for form in ("tensors", "constant"):
                yield Case("Pow", (dtype, other), form)
    for dtype in allowed("Where", "T"):
        yield Case("Where", ("bool", dtype, dtype))
        yield Case("Where", ("bool", dtype, dtype), "scalar")
    for dtype in allowed("Clip"):
        for form in ("tensors", "scalar", "constant", "low", "high"):
            yield Case("Clip", (dtype,), form)
    for source in TYPES:
        for target in TYPES:
            yield Case("Cast", (source,), attributes=(("to", target),))
            if source != target:
                yield Case("CastLike", (source, target))


def _typed(operator: str, inputs: int, forms: Sequence[str], **attributes: Any) -> Iterator[Case]:
    for form in forms:
        for dtype in allowed(operator):
            opset = OPSET if dtype in _allowed(operator, OPSET) else NEWEST
            yield Case(operator, (dtype,) * inputs, form, tuple(attributes.items()), opset)


def allowed(operator: str, parameter: str = "") -> list[str]:
    """The types that the newest version of an operator takes."""
    return _allowed(operator, NEWEST, parameter)


@cache
def _allowed(operator: str, opset: int, parameter: str = "") -> list[str]:
    try:
        schema = onnx.defs.get_schema(operator, opset)
    except onnx.defs.SchemaError:
        return []
    chosen = parameter or schema.inputs[0].type_str
    for constraint in schema.type_constraints:
        if constraint.type_param_str == chosen:
            inside = {text.removeprefix("tensor(")[:-1] for text in constraint.allowed_type_strs}
            return [name for name in TYPES if IN_ONNX.get(name, name) in inside]
    kind = chosen.removeprefix("tensor(").removesuffix(")")
    return [name for name in TYPES if IN_ONNX.get(name, name) == kind]


def operands(case: Case) -> list[np.ndarray]:
    """The inputs of a case: edges of its types, without what ONNX leaves undefined."""
    arrays = [values(dtype, place) for place, dtype in enumerate(case.dtypes)]
    if case.narrow:
        arrays = [array.astype(dtype_of(case.narrow)).astype("float32") for array in arrays]
    kind = dtype_of(case.dtypes[0]).kind
    if case.operator in ("Div", "Mod") and kind in "iu":
        arrays[1] = in_range(arrays[1], 1, 100)
    if case.operator == "BitShift":
        arrays[1] = in_range(arrays[1], 0, 80)
    if case.operator == "Pow":
        arrays = _powers(arrays)
    if case.operator == "Mod" and dict(case.attributes)["fmod"]:
        arrays[0] = in_range(
            arrays[0], 0 if kind == "u" else -(2**52), 2**52
        )  # onnxruntime divides doubles
    if case.operator == "Shrink" and kind in "iu":
        arrays[0] = in_range(
            arrays[0], 0 if kind == "u" else -(2**20), 2**20
        )  # and it shrinks floats
    if case.operator == "Clip":
        low, high = (-3, 2) if case.dtypes[0] not in ("uint8", "uint16") else (2, 40)
        low = max(low, 0) if case.dtypes[0].startswith("u") else low
        bounds = [np.array(bound, arrays[0].dtype) for bound in (low, max(high, 40))]
        shaped = [bound.reshape(()) for bound in bounds]
        if case.form in ("low", "high") and kind not in "iu":
            arrays[0] = in_range(
                arrays[0], -100, 100
            )  # infinity is no larger than a bound left out
        return [arrays[0], *shaped]
    if case.operator in ("Cast", "CastLike"):
        arrays[0] = _castable(arrays[0], _target(case))
    if case.form in ("scalar", "constant") and len(arrays) > 1:
        arrays[-1] = arrays[-1][-1:].reshape(())
    return arrays


def _target(case: Case) -> str:
    return str(dict(case.attributes).get("to", case.dtypes[-1]))


def _castable(array: np.ndarray, target: str) -> np.ndarray:
    """Floats outside of an integer type have no defined value in it."""
    kind = dtype_of(target)
    if kind.kind in "iu" and target != "bool" and array.dtype.kind not in "iub":
        limits = np.iinfo(kind)
        return in_range(array, max(limits.min, -1000), min(limits.max, 1000))
    return array


def _powers(arrays: list[np.ndarray]) -> list[np.ndarray]:
    base, exponent = arrays
    if base.dtype.kind in "iu":
        base = in_range(base, -9, 9)
        exponent = in_range(exponent, 0, 4)
        exponent = np.trunc(exponent) if exponent.dtype.kind not in "iu" else exponent
    elif exponent.dtype.kind in "iu":
        exponent = in_range(exponent, 0 if exponent.dtype.kind == "u" else -4, 4)
    return [base, exponent]


def node_of(case: Case, names: Sequence[str], output: str) -> onnx.NodeProto:
    attributes = {
        name: helper.np_dtype_to_tensor_dtype(dtype_of(value)) if name == "to" else value
        for name, value in case.attributes
    }
    return helper.make_node(case.operator, list(names), [output], name=output, **attributes)


def model_of(chosen: Sequence[Case]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """One model of a node for each case, and what goes in."""
    nodes, inputs, weights, feeds = [], {}, {}, {}
    for number, case in enumerate(chosen):
        names = []
        for place, array in enumerate(operands(case)):
            name = f"x{number}_{place}"
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            if case.operator == "Clip" and (case.form, place) in (("low", 2), ("high", 1)):
                names.append("")
                continue
            is_last = place > 0 if case.operator == "Clip" else place == len(case.dtypes) - 1
            if is_last and place and case.form in ("constant", "low", "high"):
                weights[name] = numpy_helper.from_array(array, name)
            else:
                feeds[name] = array
                inputs[name] = helper.make_tensor_value_info(name, element, array.shape)
            names.append(name)
        nodes.append(node_of(case, names, f"y{number}"))
    outputs = [onnx.ValueInfoProto(name=f"y{number}") for number in range(len(chosen))]
    graph = helper.make_graph(nodes, "test", list(inputs.values()), outputs, list(weights.values()))
    opset = chosen[0].opset
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True), feeds


def run(chosen: Sequence[Case]) -> list[np.ndarray]:
    model, feeds = model_of(chosen)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        found = deployed(path, feeds)
    return [found[f"y{number}"] for number in range(len(chosen))]


def wanted(case: Case) -> np.ndarray:
    """What onnxruntime computes, or where it has no such kernel, ONNX's reference evaluator.

    Of half precision it is what float32 gives, rounded: either of them rounds each of its steps.
    """
    if case.operator in ROUNDING_STEPS and set(case.dtypes) & {"float16", "bfloat16"}:
        wide = replace(case, dtypes=("float32",) * len(case.dtypes), narrow=case.dtypes[0])
        with np.errstate(over="ignore"):
            return _evaluated(wide).astype(dtype_of(case.dtypes[0]))
    return _evaluated(case)


def _evaluated(case: Case) -> np.ndarray:
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    from edgekit.models.onnx.reference_operators import PRECISE

    model, feeds = model_of([case])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        if any(array.dtype.name not in np.sctypeDict for array in feeds.values()):
            raise NotImplementedError  # numpy has no such type to give to onnxruntime
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        (result,) = session.run(None, feeds)
    except Exception:  # noqa: BLE001 -- it has many ways to say that it can't
        with np.errstate(all="ignore"):
            (result,) = ReferenceEvaluator(model, new_ops=list(PRECISE)).run(None, feeds)
    return np.asarray(result)


def verdicts(chosen: Sequence[Case]) -> Mapping[Case, Verdict]:
    """Many cases, as few models as there may be."""
    found: dict[Case, Verdict] = {}
    for opset in (OPSET, NEWEST):
        group = [case for case in chosen if case.opset == opset]
        for start in range(0, len(group), CASES_A_MODEL):
            found.update(judged(group[start : start + CASES_A_MODEL], run, wanted, _factor))
    return found


def _factor(case: Case) -> float:
    """How much more than its type's tolerance a case may differ by."""
    return 1e6 if case.operator in IN_FLOAT32 and case.dtypes[0] == "float64" else 1
