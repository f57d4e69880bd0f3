"""TVM's importer of PyTorch programs, with variables named after their nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from edgekit.base.errors import UnsupportedModelError
from edgekit.compiler.passes.indices import IndexRule, checked
from edgekit.models.naming import NamingBuilder
from edgekit.models.torch.elementwise import targets
from edgekit.models.torch.promotion import as_type, dtype_name

_INDEXING = frozenset({"index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put"})


class NamingImporter(ExportedProgramImporter):  # type: ignore[misc]
    """TVM's importer with a builder that names variables after nodes."""

    convert_map: dict[str, Callable[[Any], Any]]

    def __init__(self) -> None:
        self._builder: NamingBuilder | None = None
        self._scalars: dict[Any, Any] = {}
        super().__init__()
        ours: dict[str, Callable[[Any], Any]] = {
            name: partial(self._ours, convert) for name, convert in targets().items()
        }
        self.convert_map = {
            name: self._naming(convert) for name, convert in {**self.convert_map, **ours}.items()
        }

    @property
    def block_builder(self) -> NamingBuilder | None:
        return self._builder

    @block_builder.setter
    def block_builder(self, made: Any) -> None:
        self._builder = None if made is None else NamingBuilder()

    def _ours(self, convert: Callable[[Any, Any, Any], Any], node: Any) -> Any:
        return convert(self._builder, node, self.env)

    def _item(self, node: Any) -> Any:
        """Take a number from a tensor; the tensor is kept for nodes that index with the number."""
        tensor = self.env[node.args[0]]
        self._scalars[node] = self._emit(relax.op.reshape(tensor, ()))
        return super()._item(node)

    def _select(self, node: Any) -> Any:
        """Select a position along an axis; the exporter has checked that it is inside."""
        axis, place = int(node.args[1]), node.args[2]
        extent = self.shape_of(self.env[node.args[0]])[axis]
        if not isinstance(place, int):
            index = self._scalars.get(place)
            if index is None:
                raise UnsupportedModelError(
                    f"{node.name} selects at an index that is computed as a number",
                    hint="index with a tensor, as in x[:, i]",
                )
            index = self._counted_from_start(place, index, int(extent))
            return self._emit(relax.op.take(self.env[node.args[0]], index, axis))
        index = relax.const(place + int(extent) if place < 0 else place, "int64")
        return self._emit(relax.op.take(self.env[node.args[0]], index, axis))

    def _take(self, node: Any) -> Any:
        data, index = (self.env[argument] for argument in node.args)
        elements = math.prod(int(extent) for extent in self.shape_of(data))
        return self._emit(
            relax.op.take(data, self._counted_from_start(node.args[1], index, elements))
        )

    def retrieve_args(self, node: Any) -> Any:
        """Wrap negative indices in tensors, as in x[i, j]: -1 is the last element of its axis."""
        arguments = list(super().retrieve_args(node))
        if getattr(node.target, "__name__", "").split(".")[0] in _INDEXING:
            shape = self.shape_of(arguments[0])
            arguments[1] = [
                None if name is None else self._counted_from_start(name, index, int(extent))
                for name, index, extent in zip(node.args[1], arguments[1], shape, strict=False)
            ]
        return arguments

    def _counted_from_start(self, name: Any, index: Any, extent: int) -> Any:
        if str(index.ty.dtype) == "bool":
            return index  # A mask.
        rule = IndexRule(str(name), (extent,), counts_from_end=True)
        return self._emit(checked(index, rule))

    def _emit(self, expression: Any) -> Any:
        assert self._builder is not None
        return self._builder.emit(expression)

    def _of_its_type(self, value: Any, node: Any) -> Any:
        """Cast the value to PyTorch's type, from which some of TVM's converters deviate."""
        wanted = dtype_name(getattr(node.meta.get("val"), "dtype", ""))
        kind = getattr(value, "ty", None)
        if not wanted or not isinstance(kind, relax.TensorType) or str(kind.dtype) == wanted:
            return value
        return self._emit(as_type(value, wanted))

    def _naming(self, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def convert_named(node: Any) -> Any:
            assert self._builder is not None
            outer, self._builder.node = self._builder.node, str(node.name)
            try:
                return self._of_its_type(convert(node), node)
            finally:
                self._builder.node = outer

        return convert_named
