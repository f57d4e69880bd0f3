"""Variables named after the node of the model file that they come from.

A partition reports nodes by their names in the file, and the user selects nodes by them. The result
of a node is called `NODE__NUMBER`; backends/graph.py reads that name.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from edgekit.base.node_names import named_after, numbered


class NamingBuilder(relax.BlockBuilder):  # type: ignore[misc]
    """A block builder that names variables after the node that is being converted."""

    def __init__(self, module: Any = None) -> None:
        super().__init__(module)
        self.node = ""
        """The current node's name; empty if there is none."""
        self._count = 0

    def emit(self, expr: Any, name_hint: str = "") -> Any:
        return super().emit(expr, name_hint or self._next(self.node))

    def emit_output(self, output: Any, name_hint: str = "") -> Any:
        """Emit an output under the last node's name, whose result it copies."""
        node = named_after(str(output.name)) if isinstance(output, relax.Var) else ""
        return super().emit_output(output, name_hint or self._next(node))

    def _next(self, node: str) -> str:
        if not node:
            return ""
        self._count += 1
        return numbered(node, self._count)
