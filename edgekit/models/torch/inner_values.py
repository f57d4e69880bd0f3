"""The values between the operators of a PyTorch program, and variants of it that return some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.base.errors import UnsupportedModelError
from edgekit.base.files import storage_errors
from edgekit.base.tensors import DTYPES
from edgekit.models.inner_value import InnerValue
from edgekit.models.model import open_model
from edgekit.models.torch.program import import_torch, open_program, quiet_torch


class TorchInnerModel:
    """A program, with every tensor that an operator of it computes."""

    def __init__(self, path: Path) -> None:
        self._source = open_model(path)
        program = self._program()
        self.values = tuple(
            InnerValue(node.name, node.name, _operator(node), None)
            for node in program.graph.nodes
            if node.op == "call_function" and _is_known(node.meta.get("val"))
        )

    def write(self, path: Path, values: Sequence[InnerValue]) -> None:
        """Write the program with the values of these names as its outputs."""
        torch = import_torch()
        from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
        from torch.utils import _pytree as pytree

        program = self._program()
        nodes = {node.name: node for node in program.graph.nodes}
        (returned,) = (node for node in program.graph.nodes if node.op == "output")
        returned.args = (tuple(nodes[value.name] for value in values),)
        program.graph_module.recompile()
        arguments = [TensorArgument(value.name) for value in values]
        program.graph_signature.output_specs[:] = [
            OutputSpec(OutputKind.USER_OUTPUT, argument, None) for argument in arguments
        ]
        signature = program.module_call_graph[0].signature
        signature.outputs = list(arguments)
        signature.out_spec = pytree.tree_structure(tuple(0 for _ in values))
        with storage_errors("write a variant of the model", path), quiet_torch():
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.export.save(program, path)

    def _program(self) -> Any:
        """Load the program anew: a variant is made in place."""
        program = open_program(self._source).program
        kinds = {spec.kind.name for spec in program.graph_signature.output_specs}
        if kinds != {"USER_OUTPUT"}:
            raise UnsupportedModelError(
                f"{self._source.path.name} keeps a state from call to call, and its inner values "
                "can't be outputs",
                hint="edgekit verify compares its outputs",
            )
        return program


def _is_known(value: Any) -> bool:
    """Tell whether a node's value is one tensor of a type and a shape that are known."""
    torch = import_torch()
    return (
        isinstance(value, torch.Tensor)
        and all(isinstance(extent, int) for extent in value.shape)
        and str(value.dtype).removeprefix("torch.") in DTYPES
    )


def _operator(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]
