"""Joins a model in Relax with the graphs that stand before and behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from edgekit.base.errors import ProjectError
from edgekit.base.options import option
from edgekit.base.tensors import TensorSpec
from edgekit.base.varying import without_lengths
from edgekit.compiler.rewriting import with_main
from edgekit.models.ends import Ends
from edgekit.models.model import Model
from edgekit.models.onnx.ends.graphs import Graph, back_graph, front_graph
from edgekit.models.onnx.loading import load_ends


def joined(model: Model, ends: Ends) -> Model:
    """Return the model with its ends around it; ProjectError if they don't fit."""
    own, results = without_lengths(model.inputs, model.outputs)
    states = {spec.state for spec in own}
    front = front_graph(ends, own)
    back = back_graph(ends, own, [spec for spec in results if spec.name not in states])
    for graph, specs, section in ((front, own, "pre"), (back, results, "post")):
        _check_fixed(graph, specs, f"[{section}process]")
    module, function = model.module, model.module["main"]
    inputs, parameters = list(model.inputs), list(function.params)
    values, outputs = _results(function), list(model.outputs)
    blocks = list(function.body.blocks)
    if front is not None:
        module, _ = load_ends(front.model, module)
        module, pictures = _without(module, "ends")
        names = [spec.name for spec in inputs]
        places = [names.index(name) for name in front.tensors]
        given = [parameters[place] for place in places]
        blocks = [*pictures.body.blocks, _bound(given, _results(pictures)), *blocks]
        for place, picture in zip(places, pictures.params, strict=True):
            parameters[place] = picture
            shape = tuple(int(extent) for extent in picture.ty.shape)
            inputs[place] = TensorSpec(inputs[place].name, "uint8", shape)
    if back is not None:
        module, made = load_ends(back.model, module)
        module, meaning = _without(module, "ends")
        found = {spec.name: value for spec, value in zip(outputs, values, strict=True)}
        taken = [found[name] for name in back.tensors]
        blocks = [*blocks, _bound(meaning.params, taken), *meaning.body.blocks]
        kept = [spec for spec in outputs if spec.name not in back.tensors]
        values = [*_results(meaning), *(found[spec.name] for spec in kept)]
        outputs = [*made, *kept]
    types = [relax.TensorType(spec.shape, spec.dtype) for spec in outputs]
    alone = len(values) == 1
    result = relax.Var("result", types[0] if alone else relax.TupleType(types))
    whole = values[0] if alone else relax.Tuple(values)
    blocks.append(relax.BindingBlock([relax.VarBinding(result, whole)]))
    body = relax.SeqExpr(_merged(blocks), result)
    module = with_main(module, parameters, body, result.ty)
    by_size = model.by_size

    def joined_by_size() -> tvm.IRModule:
        assert by_size is not None
        return joined(replace(model, module=by_size(), by_size=None), ends).module

    return replace(
        model,
        module=module,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        by_size=None if by_size is None else joined_by_size,
    )


def _check_fixed(graph: Graph | None, specs: Sequence[TensorSpec], section: str) -> None:
    """Raise ProjectError if the graph is joined to a tensor whose sizes vary."""
    for spec in specs:
        if graph is not None and spec.varying and spec.name in graph.tensors:
            raise ProjectError(
                f"{section} needs tensors of one size, and {spec.name!r} is {spec}",
                hint=f"give its dimensions one size with {option('shape')}, or leave out {section}",
            )


def _without(module: Any, name: str) -> tuple[Any, Any]:
    """Take a function out of a module."""
    functions = {v: found for v, found in module.functions_items() if v.name_hint != name}
    return tvm.IRModule(functions, attrs=module.attrs), module[name]


def _results(function: Any) -> list[Any]:
    """Return what a function returns, a value for each output."""
    value = function.body.body
    if isinstance(value.ty, relax.TupleType):
        return [relax.TupleGetItem(value, place) for place in range(len(value.ty.fields))]
    return [value]


def _bound(variables: Sequence[Any], values: Sequence[Any]) -> Any:
    pairs = zip(variables, values, strict=True)
    return relax.BindingBlock([relax.VarBinding(variable, value) for variable, value in pairs])


def _merged(blocks: Sequence[Any]) -> list[Any]:
    """Return one block, as importers make it, where the model does not branch."""
    flows = [isinstance(block, relax.DataflowBlock) for block in blocks]
    # The blocks that only bind are written by `_bound`.
    branches = any(
        isinstance(binding.value, (relax.If, relax.Function))
        for block in blocks
        for binding in block.bindings
    )
    if branches or not any(flows):
        return list(blocks)
    return [relax.DataflowBlock([binding for block in blocks for binding in block.bindings])]
