"""Merge adjacent steps into one region, as long as nothing has to run in between.

A region runs in one call: all its inputs must exist before the call, and none of them may depend
on its outputs. Two groups merge unless a path leaves one and enters the other through a node of
neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.backends.graph import Graph
from edgekit.backends.matching import Placed


def merge_steps(
    graph: Graph, placed: Sequence[Placed], others: Sequence[frozenset[int]]
) -> list[tuple[Placed, ...]]:
    """Return groups of steps, each in a valid order.

    `others` are groups of nodes that already run as one: regions of other backends.
    """
    group_of = {node.index: node.index for node in graph.nodes}
    members = {node.index: {node.index} for node in graph.nodes}

    def join(a: int, b: int) -> None:
        keep, drop = min(a, b), max(a, b)
        for index in members[drop]:
            group_of[index] = keep
        members[keep] |= members.pop(drop)

    for nodes in (*others, *(step.nodes for step in placed)):
        first, *rest = sorted(nodes)
        for index in rest:
            if group_of[index] != group_of[first]:
                join(group_of[index], group_of[first])

    ours = {group_of[min(step.nodes)] for step in placed}
    for step in sorted(placed, key=lambda step: step.root):
        for producer in sorted({p for n in step.nodes for p in graph.nodes[n].reads}):
            mine, theirs = group_of[min(step.nodes)], group_of[producer]
            if mine == theirs or theirs not in ours:
                continue
            if not _path_between(graph, group_of, members, mine, theirs):
                join(mine, theirs)
                ours = {group_of[min(other.nodes)] for other in placed}

    groups: dict[int, list[Placed]] = {}
    for step in placed:
        groups.setdefault(group_of[min(step.nodes)], []).append(step)
    return [tuple(sorted(steps, key=lambda step: step.root)) for _, steps in sorted(groups.items())]


def _path_between(
    graph: Graph, group_of: dict[int, int], members: dict[int, set[int]], a: int, b: int
) -> bool:
    """Tell whether a path leaves the two groups and enters one of them again."""
    both = {a, b}
    seen: set[int] = set()
    waiting = [
        group_of[reader]
        for group in both
        for index in members[group]
        for reader in graph.readers[index]
        if group_of[reader] not in both
    ]
    while waiting:
        group = waiting.pop()
        if group in seen:
            continue
        seen.add(group)
        for index in members[group]:
            for reader in graph.readers[index]:
                following = group_of[reader]
                if following in both:
                    return True
                waiting.append(following)
    return False
