"""Match a backend's rules against every node that no backend has taken yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.relax import dpl

from edgekit.backends.base import Refused, Rule, Step, Tensor
from edgekit.backends.graph import Graph, items_of
from edgekit.backends.match import Match, known_shape
from edgekit.backends.quantised import DEQUANTIZE, QUANTIZE
from edgekit.base.errors import BuildError

_INNER = (dpl.pattern.CallPattern, dpl.pattern.TuplePattern, dpl.pattern.TupleGetItemPattern)


@dataclass(frozen=True)
class Placed:
    """A step and the nodes that it replaces."""

    step: Step
    root: int
    """The node whose result later nodes read."""
    nodes: frozenset[int]


@dataclass(frozen=True)
class Matched:
    placed: tuple[Placed, ...]
    refusals: Mapping[int, str]
    """The reasons, by node, why the backend refused an operator that a rule matched."""


def match_rules(
    graph: Graph,
    rules: Sequence[Rule],
    free: AbstractSet[int],
    backend: str,
    *,
    only_finite: bool = False,
) -> Matched:
    """Cover free nodes with steps, from the model's end: readers come before what they read.

    With `only_finite` a node that may read NaN or infinity is refused.
    """
    taken: set[int] = set()
    placed: list[Placed] = []
    refusals: dict[int, str] = {}
    for node in reversed(graph.nodes):
        if node.index not in free or node.index in taken or not node.operator:
            continue
        for rule in rules:
            parts = rule.pattern.extract_matched_expr(node.variable, graph.values)
            if parts is None:
                continue
            covered = _covered(graph, parts)
            if covered is None or not covered <= free or covered & taken:
                continue
            try:
                _require_whole_arithmetic(graph, rule, covered)
                if only_finite:
                    _require_finite(graph, covered)
                step = _step(graph, rule, parts, node.index, covered)
            except Refused as refused:
                refusals.setdefault(node.index, refused.reason)
                continue
            except Exception as error:
                raise BuildError(
                    f"the backend {backend} failed at its rule {rule.name}: "
                    f"{type(error).__name__}: {error}",
                    hint=f"keep the operator in TVM with [offload] never = "
                    f'["{node.operator}"], and report the model to the author of the backend',
                ) from error
            nodes = frozenset({*covered, *(item.index for _, item in items_of(graph, node.index))})
            placed.append(Placed(step, node.index, nodes))
            taken |= nodes
            break
    for index in taken:
        refusals.pop(index, None)
    return Matched(tuple(reversed(placed)), refusals)


def _covered(graph: Graph, parts: Mapping[Any, Any]) -> set[int] | None:
    """Return the nodes inside a match; None if a node outside the match reads one of them."""
    covered = set()
    for pattern, expression in parts.items():
        if isinstance(pattern, _INNER):
            index = graph.index_of(expression)
            if index is not None:
                covered.add(index)
    root = max(covered, default=None)
    for index in sorted(covered - {root}):
        if graph.leaves_block(index) or not graph.readers[index] <= covered:
            if graph.nodes[index].operator != DEQUANTIZE:
                return None
            covered.remove(index)  # read elsewhere too: it stays, and the match skips it
    return covered


def _require_whole_arithmetic(graph: Graph, rule: Rule, covered: AbstractSet[int]) -> None:
    """Refuse floats that must stay exact, unless the match computes in integers itself."""
    if rule.within_quantised:
        return
    operators = {graph.nodes[index].operator for index in covered}
    exact = sorted(covered & graph.kept_exact.keys())
    if exact and not operators & {QUANTIZE, DEQUANTIZE}:
        raise Refused(graph.kept_exact[exact[0]])


def _require_finite(graph: Graph, covered: AbstractSet[int]) -> None:
    read = {
        index for node in covered for index in graph.nodes[node].reads
    } & graph.non_finite.keys()
    if read:
        source = graph.non_finite[min(read)]
        raise Refused(
            f"NaN or infinity may come from {source.model_node or source.operator} "
            f"({source.operator}), and the option non_finite doesn't let them in"
        )


def _step(
    graph: Graph, rule: Rule, parts: Mapping[Any, Any], root: int, covered: AbstractSet[int]
) -> Step:
    named = {name: parts[part] for name, part in rule.parts.items() if part in parts}
    match = Match(named, graph.values)
    layer = rule.take(match)
    nodes = [graph.nodes[index] for index in sorted(covered)]
    return Step(
        rule=rule.name,
        layer=layer,
        inputs=tuple(_input(graph, match, part) for part in layer.inputs),
        outputs=_outputs(graph, root),
        operators=tuple(node.operator for node in nodes if node.operator),
        nodes=tuple(dict.fromkeys(node.model_node for node in nodes if node.model_node)),
        macs=sum(node.macs for node in nodes),
    )


def _input(graph: Graph, match: Match, part: str) -> Tensor:
    name, _, field = part.partition(".")
    expression = match.value(name).fields[int(field)] if field else match.expression(name)
    if not isinstance(expression, relax.Var):
        index = graph.index_of(expression)
        if index is None:
            raise Refused(f"its {part} is a constant")
        expression = graph.nodes[index].variable
    if known_shape(expression.ty) is None:
        raise Refused(f"the shape of its {part} is known only at run time")
    return graph.tensor(expression)


def _outputs(graph: Graph, root: int) -> tuple[Tensor, ...]:
    variable = graph.nodes[root].variable
    if not isinstance(variable.ty, relax.TupleType):
        if known_shape(variable.ty) is None:
            raise Refused("its shape is known only at run time")
        return (graph.tensor(variable),)
    items = dict(items_of(graph, root))
    if graph.leaves_block(root) or len(graph.readers[root]) != len(items):
        raise Refused("its results are handed on as one tuple")
    outputs = []
    for index, kind in enumerate(variable.ty.fields):
        if index not in items:
            raise Refused("not all of its results are used")
        if known_shape(kind) is None:
            raise Refused("its shape is known only at run time")
        outputs.append(graph.tensor(items[index].variable))
    return tuple(outputs)
