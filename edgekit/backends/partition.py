"""Assign operators to backends in order of preference, the rest to TVM, with a reason for each.

Each backend in turn covers the remaining nodes with steps (matching.py), steps merge into regions
(merging.py), and a region that is not worth its boundary goes back to TVM (cost.py).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax

from edgekit.backends.base import Backend, Decision, Options, Region, Rule, Tensor
from edgekit.backends.cost import Verdict, estimate
from edgekit.backends.graph import Graph
from edgekit.backends.match import known_shape
from edgekit.backends.matching import Placed, match_rules
from edgekit.backends.merging import merge_steps
from edgekit.backends.node import Node
from edgekit.backends.rewrite import Claim, rewrite_block
from edgekit.base.errors import UsageError
from edgekit.compiler.loops import times_run
from edgekit.profiles.offload import Rates

NO_RULE = "no backend has a rule for it"
NOT_OPERATORS = ("call_dps_packed", "call_tir", "call_pure_packed")


@dataclass(frozen=True)
class Selection:
    """The user's choices for a partition."""

    backends: tuple[tuple[Backend, Options], ...]
    """The backends, in order of preference."""
    force: tuple[str, ...] = ()
    """Operators and nodes of the model (names, `*` for any text) that are offloaded even if that
    does not pay."""
    never: tuple[str, ...] = ()
    """Operators and nodes that stay in TVM."""
    rates: Rates = field(default_factory=Rates)
    measured: Mapping[str, Verdict] = field(default_factory=dict)
    """Measured verdicts by region, which override estimates."""
    one_layer_each: bool = False
    """Whether every step is a region of its own, to measure the gain of merging."""

    def split(self) -> tuple[Selection, Selection]:
        """Return the backends that run before batch norm is folded away, and the others."""
        early = tuple(pair for pair in self.backends if pair[0].before_folding)
        late = tuple(pair for pair in self.backends if not pair[0].before_folding)
        return replace(self, backends=early), replace(self, backends=late)


@dataclass(frozen=True)
class Candidate:
    claim: Claim
    graph: Graph
    verdict: Verdict


@dataclass(frozen=True)
class Partition:
    module: Any
    regions: tuple[Region, ...]
    decisions: tuple[Decision, ...]
    """One decision per operator, in the model's order."""
    candidates: tuple[Candidate, ...] = ()
    """The regions that backends could run, worth their boundary or not."""
    decision_of: Mapping[Any, Decision] = field(default_factory=dict)
    """The decisions by the variable that an operator computes."""


def partition(module: Any, selection: Selection) -> Partition:
    """Replace the operators that backends take by calls to their regions."""
    claims: list[Claim] = []
    candidates: list[Candidate] = []
    decision_of: dict[Any, Decision] = {}
    times = times_run(module)
    for variable, function in list(module.functions_items()):
        if not isinstance(function, relax.Function):
            continue
        values = relax.analysis.get_var2val(function)
        blocks = []
        for block in function.body.blocks:
            if isinstance(block, relax.DataflowBlock):
                graph = Graph(block, values)
                found = _Block(graph, selection, times.get(str(variable.name_hint), 1))
                claims += found.claims
                candidates += found.candidates
                decision_of |= found.decisions()
                blocks.append(rewrite_block(graph, found.claims) if found.claims else block)
            else:
                blocks.append(block)
        body = relax.SeqExpr(blocks, function.body.body)
        rewritten = relax.Function(
            function.params, body, function.ret_ty, function.is_pure, function.attrs
        )
        module.update_func(variable, rewritten)
    # Equal regions share one instance in the library.
    regions = {claim.region.symbol: claim.region for claim in claims}
    return Partition(
        relax.transform.Normalize()(module),  # infers the types of the rewritten bindings
        tuple(regions.values()),
        tuple(decision_of.values()),
        tuple(candidates),
        decision_of,
    )


class _Block:
    """The decisions about one dataflow block."""

    def __init__(self, graph: Graph, selection: Selection, times: int) -> None:
        self.graph = graph
        self.times = times
        """How often a loop repeats the block in one run."""
        self.selection = selection
        self.claims: list[Claim] = []
        self.candidates: list[Candidate] = []
        self._why_taken: dict[int, tuple[Region, str]] = {}
        self._why_not: dict[int, list[str]] = {}
        self._never = {node.index for node in graph.nodes if _is_named(node, selection.never)}
        for backend, options in selection.backends:
            self._offer(backend, options)

    def _offer(self, backend: Backend, options: Options) -> None:
        taken = {index for claim in self.claims for index in claim.nodes}
        free = {node.index for node in self.graph.nodes} - taken - self._never
        rules: Sequence[Rule] = backend.rules(options)
        only_finite = options.get("non_finite") == "error"
        matched = match_rules(self.graph, rules, free, backend.name, only_finite=only_finite)
        for index, reason in matched.refusals.items():
            self._why_not.setdefault(index, []).append(f"{backend.name}: {reason}")
        for steps in self._group(matched.placed):
            claim = self._claim(backend, options, steps)
            verdict = self._judge(backend, options, claim, steps)
            self.candidates.append(Candidate(claim, self.graph, verdict))
            for index in claim.nodes:
                if verdict.pays:
                    self._why_taken[index] = (claim.region, verdict.reason)
                else:
                    self._why_not.setdefault(index, []).append(
                        f"{backend.name}: not worth its boundary: {verdict.reason}"
                    )
            if verdict.pays:
                self.claims.append(claim)

    def _group(self, placed: Sequence[Placed]) -> list[tuple[Placed, ...]]:
        if self.selection.one_layer_each:
            return [(step,) for step in placed]
        return merge_steps(self.graph, placed, [claim.nodes for claim in self.claims])

    def _judge(
        self, backend: Backend, options: Options, claim: Claim, steps: Sequence[Placed]
    ) -> Verdict:
        for step in steps:
            for index in step.nodes:
                if _is_named(self.graph.nodes[index], self.selection.force):
                    return Verdict(True, "the user forced it", 0.0)
        measured = self.selection.measured.get(claim.region.symbol)
        if measured is None and self.times > 1:
            # Small kernels in a loop are fast here: only a measurement says what a library saves.
            reason = f"not measured, and a loop would enter it {self.times:,} times"
            return Verdict(False, reason, 0.0)
        return measured or estimate(claim.region, self.selection.rates, backend, options)

    def _claim(self, backend: Backend, options: Options, steps: Sequence[Placed]) -> Claim:
        nodes = frozenset(index for step in steps for index in step.nodes)
        made = {tensor.name for step in steps for tensor in step.step.outputs}
        read = [tensor for step in steps for tensor in step.step.inputs]
        inputs = list(dict.fromkeys(tensor for tensor in read if tensor.name not in made))
        outputs = [
            tensor
            for step in steps
            for tensor in step.step.outputs
            if self._is_read_outside(tensor, nodes)
        ]
        region = Region(
            symbol=_symbol(backend, options, [step.step for step in steps], inputs, outputs),
            backend=backend.name,
            steps=tuple(step.step for step in steps),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
        )
        return Claim(
            region,
            nodes,
            tuple(self.graph.variable(tensor) for tensor in inputs),
            tuple(self.graph.variable(tensor) for tensor in outputs),
        )

    def _is_read_outside(self, tensor: Tensor, nodes: frozenset[int]) -> bool:
        index = self.graph.index_of(self.graph.variable(tensor))
        assert index is not None
        return self.graph.leaves_block(index) or not self.graph.readers[index] <= nodes

    def decisions(self) -> dict[Any, Decision]:
        return {
            node.variable: self._decision(node)
            for node in self.graph.nodes
            if node.operator and node.operator not in NOT_OPERATORS
        }

    def _decision(self, node: Node) -> Decision:
        region, reason = self._why_taken.get(node.index, (None, ""))
        if region is None:
            if node.index in self._never:
                reason = "the user said never"
            else:
                why = self._why_not.get(node.index)
                unruled = self.graph.kept_exact.get(node.index, NO_RULE)
                reason = "; ".join(why) if why else unruled
        return Decision(
            operator=node.operator,
            node=node.model_node,
            shape=known_shape(node.variable.ty) or (),
            macs=node.macs * self.times,
            backend=region.backend if region else None,
            region=region.symbol if region else None,
            reason=reason,
        )


def _is_named(node: Node, names: Sequence[str]) -> bool:
    return any(means(name, node.operator, node.model_node) for name in names)


def means(name: str, operator: str, node: str) -> bool:
    """Tell whether the user's pattern names an operator (`nn.softmax`, `softmax`) or a node of the
    model; `*` stands for any text."""
    pattern = re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)
    candidates = (operator, operator.removeprefix("nn."), node)
    return any(pattern.fullmatch(candidate) for candidate in candidates if candidate)


def check_forced(force: Sequence[str], decisions: Sequence[Decision]) -> None:
    """Raise UsageError if something that the user forced matches nothing or stays in TVM."""
    for name in force:
        meant = [d for d in decisions if means(name, d.operator, d.node)]
        if not meant:
            raise UsageError(
                f"offload.force names {name!r}, which is no operator of this model and no node",
                hint="edgekit partition lists both",
            )
        left = [decision for decision in meant if decision.backend is None]
        if left:
            raise UsageError(
                f"offload.force names {name!r}, and {left[0].operator} can't be offloaded: "
                f"{left[0].reason}",
                hint="leave it out of force, or offload to another backend",
            )


def _symbol(
    backend: Backend,
    options: Options,
    steps: Sequence[Any],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> str:
    """Derive the name from everything that decides what the region computes and how, so that
    measurements hold as long as the name does."""
    digest = hashlib.sha256()
    local: dict[str, int] = {}

    def tell(*words: object) -> None:
        digest.update(repr(words).encode())

    def number(tensors: Sequence[Tensor]) -> list[tuple[object, ...]]:
        return [(local.setdefault(t.name, len(local)), t.shape, t.dtype) for t in tensors]

    tell(backend.name, backend.version, sorted(options.items()), number(inputs))
    for step in steps:
        layer = step.layer
        tell(layer.kind, sorted(layer.settings.items()), number(step.inputs), number(step.outputs))
        for name, array in sorted(layer.weights.items()):
            tell(name, array.shape, str(array.dtype))
            digest.update(array.tobytes())
    tell(number(outputs))
    return f"edgekit_{backend.name.replace('-', '_')}_{digest.hexdigest()[:16]}"
