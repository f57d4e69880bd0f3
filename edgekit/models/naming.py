"""Variables that say which node of the model file they came from.

A partition tells in the file's words who runs what, and the user names nodes there. What a node
computes is called `NODE__NUMBER`; backends/graph.py reads it.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from edgekit.base.node_names import named_after, numbered


class NamingBuilder(relax.BlockBuilder):  # type: ignore[misc]
    """A block builder that names variables after the node that is being converted."""

    def __init__(self) -> None:
        super().__init__()
        self.node = ""
        """Empty where what is emitted comes from none."""
        self._count = 0

    def emit(self, expr: Any, name_hint: str = "") -> Any:
        return super().emit(expr, name_hint or self._next(self.node))

    def emit_output(self, output: Any, name_hint: str = "") -> Any:
        """An output is a copy of what the last node computed: it has that node's name."""
        node = named_after(str(output.name)) if isinstance(output, relax.Var) else ""
        return super().emit_output(output, name_hint or self._next(node))

    def _next(self, node: str) -> str:
        if not node:
            return ""
        self._count += 1
        return numbered(node, self._count)
