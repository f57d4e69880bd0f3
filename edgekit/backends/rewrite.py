"""Rewrite a function so that its regions are calls into their library."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from edgekit.backends.base import Region
from edgekit.backends.graph import Graph


@dataclass(frozen=True)
class Claim:
    """A region and the nodes that it replaces."""

    region: Region
    nodes: frozenset[int]
    inputs: tuple[Any, ...]
    """The variables behind `region.inputs`."""
    outputs: tuple[Any, ...]


def rewrite_block(graph: Graph, claims: Sequence[Claim]) -> Any:
    """Replace each claim's nodes by one call, and return the block in a valid order.

    A reader of a region may stand before the region's last node, so bindings are sorted again,
    keeping their order where possible.
    """
    claim_of = {index: claim for claim in claims for index in claim.nodes}
    unit_of = {
        node.index: min(claim_of[node.index].nodes) if node.index in claim_of else node.index
        for node in graph.nodes
    }
    needs: dict[int, set[int]] = {unit: set() for unit in unit_of.values()}
    for node in graph.nodes:
        needs[unit_of[node.index]] |= {unit_of[producer] for producer in node.reads}
    feeds: dict[int, list[int]] = {unit: [] for unit in needs}
    missing = {}
    for unit, producers in needs.items():
        producers.discard(unit)
        missing[unit] = len(producers)
        for producer in producers:
            feeds[producer].append(unit)
    ready = [unit for unit, count in missing.items() if count == 0]
    heapq.heapify(ready)
    bindings = []
    while ready:
        unit = heapq.heappop(ready)
        if unit in claim_of:
            bindings += _call(claim_of[unit])
        else:
            node = graph.nodes[unit]
            bindings.append(relax.VarBinding(node.variable, node.value))
        for reader in feeds[unit]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    assert not any(missing.values()), "a region needs its own result"
    return relax.DataflowBlock(bindings)


def _call(claim: Claim) -> list[Any]:
    types = [variable.ty for variable in claim.outputs]
    symbol = claim.region.symbol
    call = relax.call_dps_packed(symbol, relax.Tuple(list(claim.inputs)), out_ty=types)
    if len(claim.outputs) == 1:
        return [relax.VarBinding(claim.outputs[0], call)]
    whole = relax.DataflowVar(symbol, relax.TupleType(types))
    items = [
        relax.VarBinding(variable, relax.TupleGetItem(whole, index))
        for index, variable in enumerate(claim.outputs)
    ]
    return [relax.VarBinding(whole, call), *items]
