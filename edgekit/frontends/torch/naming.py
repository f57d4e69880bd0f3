"""TVM's importer of PyTorch programs, with variables that say which node they came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from edgekit.frontends.naming import NamingBuilder


class NamingImporter(ExportedProgramImporter):  # type: ignore[misc]
    """Where TVM's class makes itself a builder, it gets one that names."""

    convert_map: dict[str, Callable[[Any], Any]]

    def __init__(self) -> None:
        self._builder: NamingBuilder | None = None
        super().__init__()
        self.convert_map = {
            name: self._naming(convert) for name, convert in self.convert_map.items()
        }

    @property
    def block_builder(self) -> NamingBuilder | None:
        return self._builder

    @block_builder.setter
    def block_builder(self, made: Any) -> None:
        self._builder = None if made is None else NamingBuilder()

    def _naming(self, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def convert_named(node: Any) -> Any:
            assert self._builder is not None
            outer, self._builder.node = self._builder.node, str(node.name)
            try:
                return convert(node)
            finally:
                self._builder.node = outer

        return convert_named
