"""Turns a TorchScript program into an exported one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch._export.converter import TS2EPConverter
from torch.utils import _pytree as pytree

from edgekit.base.arrays import Array
from edgekit.base.errors import ModelError, UnsupportedModelError
from edgekit.models.foreign.agreement import Input, Run, check_agreement, missing_shape
from edgekit.models.torch.program import first_line

_MOST_TRIES = 16
"""The most combinations of input types to try: a program does not hold them."""
_NO_NAME = re.compile(r"[^\w.]")
_SIMPLER = "export the module itself: torch.export.save(torch.export.export(model, args), path)"


def convert(path: Path, shapes: Mapping[str, tuple[int, ...]], target: Path) -> None:
    """Write the program for these shapes as a .pt2 file."""
    try:
        model = torch.jit.load(str(path), map_location="cpu").eval()
    except Exception as error:
        raise ModelError(
            f"PyTorch {torch.__version__} cannot load {path.name}: {first_line(error)}",
            hint="save it again with the PyTorch that is installed on this host",
        ) from error
    names = _names(path, model)
    with torch.no_grad():
        inputs = _typed(path, model, [(name, _shape(path, name, shapes)) for name in names])
        program = _exported(path, model, inputs)
        check_agreement(path.name, inputs, runner(model), runner(program.module()))
        save(program, names, target)


def runner(module: Any) -> Run:
    """Return a module as a function of arrays."""

    def run(arrays: list[Array]) -> Sequence[Array]:
        results = pytree.tree_leaves(module(*map(torch.from_numpy, arrays)))
        return [result.float().numpy() for result in results]

    return run


def save(program: Any, names: Sequence[str], target: Path) -> None:
    """Save a program whose inputs have these names."""
    signature = program.graph_signature
    places = [node for node in program.graph.nodes if node.op == "placeholder"]
    own = dict(zip(signature.user_inputs, names, strict=True))
    taken = {node.name for node in program.graph.nodes} - set(own)
    for node in places:
        name = own.get(node.name, node.name)
        if name != node.name and name not in taken and name.isidentifier():
            for spec in signature.input_specs:
                if spec.arg.name == node.name:
                    spec.arg.name = name
            node.name = node.target = name
    program.graph_module.recompile()
    for number, spec in enumerate(signature.input_specs):
        if spec.target is not None and _NO_NAME.search(spec.target):  # Keras has paths
            plain = f"{_NO_NAME.sub('_', spec.target)}_{number}"
            for values in (program.state_dict, program.constants):
                if spec.target in values:
                    values[plain] = values.pop(spec.target)
            spec.target = plain
    torch.export.save(program, target)


def _names(path: Path, model: Any) -> list[str]:
    """Return the names of the inputs without a default; each has to be a tensor."""
    names = []
    for argument in model.forward.schema.arguments[1:]:
        if argument.has_default_value():
            continue
        if str(argument.type) != "Tensor":
            raise UnsupportedModelError(
                f"the input {argument.name} of {path.name} is no tensor, but {argument.type}",
                hint="export a module whose inputs are tensors",
            )
        names.append(re.sub(r"\W", "_", argument.name))
    return names


def _shape(path: Path, name: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    if name not in shapes:
        raise missing_shape(path.name, name)
    return shapes[name]


def _typed(path: Path, model: Any, inputs: list[tuple[str, tuple[int, ...]]]) -> list[Input]:
    """Return the inputs in the first types that the program takes: floats where it can."""
    failure: Exception | None = None
    for kinds in _kinds(model, len(inputs)):
        typed = [
            Input(name, kind, shape) for (name, shape), kind in zip(inputs, kinds, strict=True)
        ]
        try:
            model(*(torch.from_numpy(one.example(0)) for one in typed))
        except Exception as error:  # noqa: BLE001 - the last one is reported
            failure = failure or error
            continue
        return typed
    assert failure is not None
    given = ", ".join(f"{name} {list(shape)}" for name, shape in inputs)
    raise ModelError(
        f"{path.name} does not run with {given}: {first_line(failure)}",
        hint="check the shapes",
    )


def _kinds(model: Any, count: int) -> Iterator[tuple[str, ...]]:
    weights = (str(weight.dtype).removeprefix("torch.") for weight in model.parameters())
    real = next((kind for kind in weights if kind in ("float16", "float32", "float64")), "float32")
    for number, kinds in enumerate(product((real, "int64"), repeat=count)):
        if number < _MOST_TRIES:
            yield kinds


def _exported(path: Path, model: Any, inputs: Sequence[Input]) -> Any:
    examples = tuple(torch.from_numpy(one.example(0)) for one in inputs)
    try:
        opened = TS2EPConverter(model, examples).convert().module()  # its dimensions are open
        return torch.export.export(opened, examples)
    except Exception as error:
        raise UnsupportedModelError(
            f"PyTorch cannot export {path.name}: {first_line(error)}", hint=_SIMPLER
        ) from error
