"""Turns PyTorch programs into ONNX models: a process of its own, which conversion.py starts.

It imports torch once. Each program is converted in a fork of it, so that a program that crashes or
changes the exporter does not affect the next one.

PyTorch's exporter has no translation for some operators, and a wrong one for others.
`decompositions.py` writes those in simpler operators first. What is left without a translation
becomes a node of the domain `aten`, which the importer refuses by name.
"""

from __future__ import annotations

import copy
import logging
import os
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import onnx_ir as ir
import torch
import torch._dynamo
import torch._functorch.aot_autograd
import torch.export.pt2_archive
import torch.onnx
from onnxscript import version_converter
from torch._higher_order_ops.effects import _register_effectful_op
from torch.onnx._internal.exporter import _core, _decomp, _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry

from edgekit.base.child import Channel
from edgekit.base.children import run_in_fork
from edgekit.base.errors import EdgekitError, UnsupportedModelError
from edgekit.base.failure import failure_of
from edgekit.base.tensors import TensorSpec
from edgekit.models.model import ModelSource
from edgekit.models.torch.decompositions import DECOMPOSITIONS, TRANSLATIONS, node
from edgekit.models.torch.program import first_line, open_program, quiet_torch, specialised

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_OPSET = 20
_MOST_FAILING = 100
_ONNX_NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}
_SIMPLER = "export a simpler form of the module, or save it as ONNX"
_AT_NODE = re.compile(
    r"Error when translating node .*?call_function\[target=(torch\.ops\.[\w.]+)\]"
)


def export(path: Path, inputs: tuple[TensorSpec, ...], target: Path) -> None:
    """Write the program for these input shapes as an ONNX model, with its own names."""
    opened = open_program(ModelSource(path, "torch", ""))
    program = specialised(opened, inputs)
    with quiet_torch():
        model = _exported(path, _decomposed(path, program))
        graph = model.model.graph
        names = [spec.name for spec in inputs]
        _cast_outputs(graph, tuple(spec.dtype for spec in opened.outline.outputs))
        _name_ends(
            graph,
            tuple(names),
            tuple(
                f"{spec.name}.returned" if spec.name in names else spec.name
                for spec in opened.outline.outputs
            ),
        )
        for each in graph.all_nodes():
            each.name = (each.name or "").removeprefix("node_")
        model.save(str(target))


_register_effectful_op("aten::_linalg_check_errors", None)  # or each would be a graph's operator


@cache
def _torchlib() -> ONNXRegistry:
    return ONNXRegistry.from_torchlib(opset_version=_OPSET)


def _registry() -> ONNXRegistry:
    """Return a table of the exporter's translations and ours, which one conversion may change."""
    registry = copy.copy(_torchlib())
    registry.functions = {name: [*found] for name, found in registry.functions.items()}
    for operator, translation in TRANSLATIONS.items():
        registry.register_op(operator, translation)
    return registry


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Return ours and the exporter's in one table, so that ours apply inside what PyTorch
    decomposes. A call that ours leaves goes to PyTorch's."""
    translated = {*_decomp.get_onnx_implemented_overloads(_torchlib()), *TRANSLATIONS}
    table: dict[Any, Callable[..., Any]]
    table = _decomp.create_onnx_friendly_decomposition_table(translated)
    for operator, function in DECOMPOSITIONS.items():
        table[operator] = _first(function, table[operator]) if operator in table else function
    return table


def _first(function: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    def decompose(*arguments: Any, **options: Any) -> Any:
        found = function(*arguments, **options)
        return other(*arguments, **options) if found is NotImplemented else found

    return decompose


def _decomposed(path: Path, program: ExportedProgram) -> ExportedProgram:
    try:
        with torch.fx.experimental._config.patch(backed_size_oblivious=True):
            program = program.run_decompositions(_decompositions())
            _fx_passes.insert_type_promotion_nodes(program.graph_module)
            _fx_passes.remove_assertion_nodes(program.graph_module)
    except Exception as error:
        raise UnsupportedModelError(
            f"PyTorch cannot decompose {path.name}: {_said(error)}", hint=_SIMPLER
        ) from error
    return program


def _exported(path: Path, program: ExportedProgram) -> Any:
    """Return the program in ONNX. `torch.onnx.export` would decompose it a second time."""
    registry = _registry()
    for operator in _operators(program):
        if not registry.is_registered(operator):
            registry.register_op(operator, partial(_stand_in, operator))
    failing: set[Any] = set()
    while len(failing) < _MOST_FAILING:
        try:
            exported = _core._exported_program_to_onnx_program(program, registry=registry)
            version_converter.convert_version(exported.model, _OPSET, fallback=True)
            return exported
        except Exception as error:
            operator = _untranslated(error)
            if operator is None or operator in failing:
                raise UnsupportedModelError(
                    f"{path.name} cannot be imported: {_said(error)}", hint=_SIMPLER
                ) from error
            failing.add(operator)
            registry.register_op(operator, partial(_stand_in, operator))
    raise UnsupportedModelError(
        f"{path.name} uses more than {_MOST_FAILING} operators that cannot be imported",
        hint=_SIMPLER,
    )


def _operators(program: ExportedProgram) -> set[torch._ops.OpOverload]:
    return {
        each.target
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for each in module.graph.nodes
        if isinstance(each.target, torch._ops.OpOverload)
    }


def _untranslated(error: BaseException | None) -> Any:
    """Return the operator at which the exporter failed; None if it failed elsewhere."""
    while error is not None:
        found = _AT_NODE.search(str(error))
        if found is not None:
            _, _, namespace, name, *overload = found[1].split(".")
            if not overload:  # an operator that calls a graph
                return None
            return getattr(getattr(getattr(torch.ops, namespace), name), overload[0])
        error = error.__cause__
    return None


def _said(error: BaseException) -> str:
    """Return the first cause in a sentence; some are only a name."""
    while error.__cause__ is not None:
        error = error.__cause__
    line = first_line(error)
    return line if " " in line else f"{type(error).__name__} of {line}"


def _stand_in(operator: Any, *arguments: Any, **_: Any) -> Any:
    """Add a node of the operator's own name, for the importer to refuse."""
    namespace, name = operator.name().split("::")
    return node(namespace, name.partition(".")[0], list(arguments), len(operator._schema.returns))


def _cast_outputs(graph: Any, kinds: tuple[str, ...]) -> None:
    """Give every output the program's type: the exporter leaves half precision in the type that it
    computes in."""
    for place, (value, name) in enumerate(zip(graph.outputs, kinds, strict=True)):
        kind = ir.DataType[_ONNX_NAMES.get(name, name.upper())]
        if value.dtype != kind:
            graph.append(cast := ir.Node("", "Cast", [value], [ir.AttrInt64("to", kind.value)]))
            cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(kind), value.shape
            graph.outputs[place] = cast.outputs[0]


def _name_ends(graph: Any, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """Name inputs and outputs as in the program. An output that is an input, or a second name for
    the same value, gets a node of its own."""
    taken = set(graph.inputs)
    for place, value in enumerate(graph.outputs):
        if value in taken:
            copy = ir.Node("", "Identity", [value])
            copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
            graph.append(copy)
            graph.outputs[place] = copy.outputs[0]
        taken.add(graph.outputs[place])
    inner = [value for each in graph.all_nodes() for value in each.outputs]
    for place, value in enumerate([*graph.initializers.values(), *inner]):
        if value.name in (*inputs, *outputs):
            value.name = f"{value.name}.{place}"
    for values, names in ((graph.inputs, inputs), (graph.outputs, outputs)):
        for value, name in zip(values, names, strict=True):
            value.name = name


def _convert(channel: Channel, path: Path, inputs: tuple[TensorSpec, ...], to: Path) -> NoReturn:
    try:
        export(path, inputs, to)
        channel.send(None)
    except EdgekitError as error:
        channel.send(failure_of(error))
    channel.end()


def main() -> None:
    channel = Channel()
    logging.disable(logging.WARNING)
    _decompositions()
    while channel.waiting(float(sys.argv[1])):  # then it ends, to free its memory
        message = channel.next()
        code = run_in_fork(partial(_convert, channel, *message))
        if code < 0:
            os.kill(os.getpid(), -code)  # for the caller to see what ended it
        if code:
            os._exit(code)
    channel.end()


if __name__ == "__main__":
    main()
