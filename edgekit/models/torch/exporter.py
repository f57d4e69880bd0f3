"""Turns a PyTorch program into an ONNX model: a process of its own, which conversion.py starts.

PyTorch's exporter has no translation for some operators, and a wrong one for others.
`decompositions.py` writes those in simpler operators first. What is left without a translation
becomes a node of the domain `aten`, which the importer refuses by name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
import torch.onnx
from torch.onnx._internal.exporter import _decomp, _registration

from edgekit.base.child import Channel
from edgekit.base.errors import EdgekitError, UnsupportedModelError
from edgekit.base.failure import failure_of
from edgekit.base.tensors import TensorSpec
from edgekit.models.model import ModelSource
from edgekit.models.torch.decompositions import DECOMPOSITIONS, TRANSLATIONS, node
from edgekit.models.torch.program import first_line, open_program, quiet_torch, specialised

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_MOST_MISSING = 100
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


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Return ours and the exporter's in one table, so that ours apply inside what PyTorch
    decomposes."""
    registry = _registration.ONNXRegistry.from_torchlib()
    translated = {*_decomp.get_onnx_implemented_overloads(registry), *TRANSLATIONS}
    return {**_decomp.create_onnx_friendly_decomposition_table(translated), **DECOMPOSITIONS}


def _decomposed(path: Path, program: ExportedProgram) -> ExportedProgram:
    try:
        return program.run_decompositions(_decompositions())
    except Exception as error:
        raise UnsupportedModelError(
            f"PyTorch cannot decompose {path.name}: {first_line(_root(error))}", hint=_SIMPLER
        ) from error


def _exported(path: Path, program: ExportedProgram) -> Any:
    translations: dict[Any, Callable[..., Any]] = dict(TRANSLATIONS)
    for _ in range(_MOST_MISSING):
        try:
            return torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                optimize=False,
                custom_translation_table=translations,
            )
        except Exception as error:
            operator = _untranslated(error)
            if operator is None or operator in translations:
                raise UnsupportedModelError(
                    f"{path.name} cannot be imported: {first_line(_root(error))}", hint=_SIMPLER
                ) from error
            translations[operator] = partial(_stand_in, operator)
    raise UnsupportedModelError(
        f"{path.name} uses more than {_MOST_MISSING} operators that cannot be imported",
        hint=_SIMPLER,
    )


def _untranslated(error: BaseException | None) -> Any:
    """Return the operator at which the exporter failed; None if it failed elsewhere."""
    while error is not None:
        found = _AT_NODE.search(str(error))
        if found is not None:
            _, _, namespace, name, overload = found[1].split(".")
            return getattr(getattr(getattr(torch.ops, namespace), name), overload)
        error = error.__cause__
    return None


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


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


def main() -> None:
    channel = Channel()
    logging.disable(logging.WARNING)
    path, inputs, target = channel.next()
    try:
        export(path, inputs, target)
        channel.send(None)
    except EdgekitError as error:
        channel.send(failure_of(error))
    channel.end()


if __name__ == "__main__":
    main()
