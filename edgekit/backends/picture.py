"""A partitioned model as boxes: one per layer of a region, one per operator in TVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tvm import relax

from edgekit.backends.base import Region
from edgekit.backends.match import known_shape
from edgekit.backends.partition import Partition

Kind = Literal["input", "output", "operator"]


@dataclass(frozen=True)
class Box:
    """The content of one box. A box's number is higher than those of the boxes that it reads."""

    kind: Kind
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    """The names in the model file, where known."""
    shape: tuple[int, ...] | None
    """The shape of the result; None if it is a tuple or known only at run time."""
    macs: int
    backend: str | None
    """The backend's name; None means TVM."""
    region: str | None
    reason: str
    reads: tuple[int, ...]


def boxes_of(partition: Partition) -> tuple[Box, ...]:
    """Return the boxes of the function `main`."""
    return _Boxes(partition).boxes()


class _Boxes:
    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._regions: Mapping[str, Region] = {r.symbol: r for r in partition.regions}
        self._why = {d.region: d.reason for d in partition.decisions if d.region is not None}
        self._boxes: list[Box] = []
        self._made_by: dict[Any, tuple[int, ...]] = {}
        """The boxes that compute each variable."""
        self._items: dict[Any, list[tuple[int, ...]]] = {}
        """The boxes of each item of variables that hold a tuple."""

    def boxes(self) -> tuple[Box, ...]:
        function = self._partition.module["main"]
        for parameter in function.params:
            box = _end("input", str(parameter.name), parameter.ty, ())
            self._made_by[parameter] = self._add(box)
        for block in function.body.blocks:
            for binding in block.bindings:
                self._bind(binding.var, binding.value)
        result = function.body.body
        for number, made_by in enumerate(self._results(result)):
            kind = result.ty.fields[number] if isinstance(result.ty, relax.TupleType) else result.ty
            self._add(_end("output", f"output {number}", kind, made_by))
        return tuple(self._boxes)

    def _results(self, result: Any) -> Sequence[tuple[int, ...]]:
        if isinstance(result, relax.Tuple):
            return [self._makers(field) for field in result.fields]
        return self._items.get(result) or [self._makers(result)]

    def _bind(self, variable: Any, value: Any) -> None:
        region = self._region_of(value)
        if region is not None:
            made = self._add_region(region, value.args[1].fields)
            self._made_by[variable] = tuple(dict.fromkeys(box for boxes in made for box in boxes))
            self._items[variable] = made
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in self._items:
            self._made_by[variable] = self._items[value.tuple_value][int(value.index)]
        elif isinstance(value, relax.Tuple):
            self._items[variable] = [self._makers(field) for field in value.fields]
            self._made_by[variable] = self._makers(value)
        elif isinstance(value, relax.Call):
            self._made_by[variable] = self._add(self._operator(variable, value))
        else:
            self._made_by[variable] = self._makers(value)

    def _region_of(self, value: Any) -> Region | None:
        if not isinstance(value, relax.Call) or not value.args:
            return None
        symbol = getattr(value.args[0], "global_symbol", None)
        return self._regions.get(str(symbol)) if symbol else None

    def _add_region(self, region: Region, arguments: Iterable[Any]) -> list[tuple[int, ...]]:
        made = {
            tensor.name: self._makers(argument)
            for tensor, argument in zip(region.inputs, arguments, strict=True)
        }
        for step in region.steps:
            box = Box(
                kind="operator",
                operators=step.operators,
                nodes=step.nodes,
                shape=step.outputs[0].shape,
                macs=step.macs,
                backend=region.backend,
                region=region.symbol,
                reason=self._why.get(region.symbol, ""),
                reads=_union(made[tensor.name] for tensor in step.inputs),
            )
            (index,) = self._add(box)
            for tensor in step.outputs:
                made[tensor.name] = (index,)
        return [made[tensor.name] for tensor in region.outputs]

    def _operator(self, variable: Any, call: Any) -> Box:
        decision = self._partition.decision_of.get(variable)
        shape = known_shape(variable.ty)
        if decision is None:
            name = getattr(call.args[0], "name_hint", "") if call.args else ""
            words = name or str(getattr(call.op, "name", "")).removeprefix("relax.")
            return Box(
                "operator", (words,), (), shape, 0, None, None, "TVM's own", self._makers(call)
            )
        return Box(
            kind="operator",
            operators=(decision.operator,),
            nodes=(decision.node,) if decision.node else (),
            shape=shape,
            macs=decision.macs,
            backend=None,
            region=None,
            reason=decision.reason,
            reads=self._makers(call),
        )

    def _makers(self, expression: Any) -> tuple[int, ...]:
        return _union(
            self._made_by.get(variable, ()) for variable in relax.analysis.free_vars(expression)
        )

    def _add(self, box: Box) -> tuple[int, ...]:
        self._boxes.append(box)
        return (len(self._boxes) - 1,)


def _end(kind: Kind, name: str, type_: Any, reads: tuple[int, ...]) -> Box:
    return Box(kind, (name,), (), known_shape(type_), 0, None, None, "", reads)


def _union(boxes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({index for some in boxes for index in some}))


@dataclass(frozen=True)
class Group:
    """Boxes drawn as one: a chain without branches."""

    boxes: tuple[Box, ...]
    reads: tuple[int, ...]
    """The groups that it reads."""


def group_chains(boxes: Sequence[Box], most_apart: int) -> tuple[Group, ...]:
    """Return a group per box; above `most_apart` boxes, a group per chain that one backend runs."""
    readers: dict[int, list[int]] = {index: [] for index in range(len(boxes))}
    for index, box in enumerate(boxes):
        for producer in box.reads:
            readers[producer].append(index)
    group_of: dict[int, int] = {}
    members: list[list[int]] = []
    for index, box in enumerate(boxes):
        before = box.reads[0] if len(box.reads) == 1 else None
        if (
            len(boxes) > most_apart
            and before is not None
            and len(readers[before]) == 1
            and _same_owner(boxes[before], box)
        ):
            group_of[index] = group_of[before]
            members[group_of[before]].append(index)
        else:
            group_of[index] = len(members)
            members.append([index])
    # Only the first box of a chain reads from outside: groups are numbered as boxes are.
    return tuple(
        Group(
            tuple(boxes[index] for index in inside),
            _union((group_of[producer],) for producer in boxes[inside[0]].reads),
        )
        for inside in members
    )


def _same_owner(one: Box, other: Box) -> bool:
    return (one.kind, one.backend, one.region) == ("operator", other.backend, other.region) and (
        other.kind == "operator"
    )
