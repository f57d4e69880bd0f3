"""Convert a PrimFunc in its plain form to one C function that a person can step through."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from edgekit.aot.c_text import C_TYPES
from edgekit.aot.loops.expressions import Expressions, NotInCError, may_overflow
from edgekit.aot.loops.helpers import HELPERS
from edgekit.aot.loops.statements import (
    Choice,
    Condition,
    Guard,
    Line,
    Loop,
    Scope,
    Statement,
    loop,
    with_unread_named,
    written,
)
from edgekit.base.wording import unique_name
from edgekit.compiler.passes.propagate_nan import accumulates
from edgekit.compiler.rewriting import nodes_in

_STACK_BYTES = 256
"""The size above which an array is placed in the arena."""
_ALIGNMENT = 16

_WORDS = {
    "nn": "image",
    "yy": "row",
    "xx": "column",
    "ff": "channel",
    "ry": "kernel_row",
    "rx": "kernel_column",
    "rc": "depth",
}


@dataclass(frozen=True)
class CFunction:
    source: str
    helpers: tuple[str, ...]
    uses_math: bool
    scratch: int
    in_place: tuple[tuple[int, int], ...]
    """Pairs of input and output that may be the same memory."""


@dataclass
class _Buffer:
    name: str
    dtype: str
    scalars: int = 0
    """The number of elements that are a variable each; 0 where it is an array."""
    undeclared: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class _Access:
    buffer: str
    index: str
    stored_to: str
    """The element of a buffer that stores a load; empty for a store itself."""


def c_function(
    function: Any, name: str, names: Sequence[str], inputs: int, outputs: int
) -> CFunction:
    """Return the function. `names` are those of all parameters: inputs, constants (complete names
    of global arrays), outputs. Raise NotInCError where something has no C."""
    writer = _Writer(function, name, names)
    body = writer.statements(function.body)
    results = range(len(names) - outputs, len(names))
    in_place = tuple(
        (i, j)
        for j, k in enumerate(results)
        for i in range(inputs)
        if writer.may_be_one(names[i], names[k])
    )
    parameters = []
    for index in (*range(inputs), *results):
        qualifier = "const " if index < inputs else ""
        shared = any(index in (i, results[j]) for i, j in in_place)
        only = "" if shared else "restrict "
        dtype = writer.parameters[index].dtype
        parameters.append(f"{qualifier}{C_TYPES[dtype]} *{only}{names[index]}")
    if writer.scratch:
        parameters.append("void *restrict scratch")
    read = with_unread_named([names[index] for index in range(inputs)], written(body))
    lines = [f"static void {name}({', '.join(parameters)})", "{", *read, "}", ""]
    return CFunction(
        source="\n".join(lines),
        helpers=tuple(HELPERS[helper] for helper in sorted(writer.expressions.helpers)),
        uses_math=writer.expressions.uses_math,
        scratch=writer.scratch,
        in_place=in_place,
    )


class _Writer:
    def __init__(self, function: Any, step: str, names: Sequence[str]) -> None:
        self.expressions = Expressions(self._load_text)
        self.scratch = 0
        self._buffers: dict[Any, _Buffer] = {}
        self._taken: set[str] = {*names, "scratch"}
        # A constant's full name begins with that of its step.
        self._short = {name: name.removeprefix(f"{step}_") for name in names}
        self._accesses: list[_Access] = []
        self._constant_indices = _constant_indices(function)
        self.parameters: list[_Buffer] = []
        for parameter, name in zip(function.params, names, strict=True):
            dtype = str(parameter.ty.dtype)
            if dtype not in C_TYPES:
                raise NotInCError(f"{dtype} has no C")
            self.parameters.append(_Buffer(name, dtype))
            self._buffers[parameter] = self.parameters[-1]

    def may_be_one(self, source: str, result: str) -> bool:
        """Return whether every element of the source is read only for the same element of the
        result, which is written once and never read."""
        if self._dtype_of(source) != self._dtype_of(result):
            return False
        if any(access.buffer == result and access.stored_to for access in self._accesses):
            return False
        reads = [access for access in self._accesses if access.buffer == source]
        return bool(reads) and all(
            access.stored_to == f"{result}[{access.index}]" for access in reads
        )

    def _dtype_of(self, name: str) -> str:
        return next(buffer.dtype for buffer in self.parameters if buffer.name == name)

    def statements(self, statement: Any) -> tuple[Statement, ...]:
        parts = list(statement.seq) if isinstance(statement, tirx.SeqStmt) else [statement]
        done: list[Statement] = []
        for kind, group in _runs(parts):
            if kind is tirx.BufferStore:
                done += self._run(group)
                continue
            (part,) = group
            if not isinstance(part, (tirx.DeclBuffer, tirx.AllocBuffer)):
                done += self._declarations()
            done += self._one(part)
        return tuple(done)

    def _one(self, part: Any) -> list[Statement]:
        if isinstance(part, tirx.DeclBuffer):
            self._buffers[part.buffer] = self._buffers[part.data.args[0]]
            return []
        if isinstance(part, tirx.AllocBuffer):
            return self._allocate(part.buffer)
        if isinstance(part, tirx.For):
            return self._loop(part)
        if isinstance(part, tirx.IfThenElse):
            no = () if part.else_case is None else self.statements(part.else_case)
            condition = self.expressions.text(part.condition)
            return [Choice(condition, self.statements(part.then_case), no)]
        if isinstance(part, tirx.Bind):
            name = unique_name(_buffer_name(str(part.var.name)), self._taken)
            text = self.expressions.text(part.value)
            self.expressions.names[part.var] = name
            return [Line(f"const {C_TYPES[str(part.var.ty.dtype)]} {name} = {text};")]
        if isinstance(part, tirx.AttrStmt):
            return list(self.statements(part.body))
        if isinstance(part, tirx.SeqStmt):
            return [Scope(self.statements(part))]
        raise NotInCError(f"TVM's {type(part).__name__} has no C")

    def _loop(self, part: Any) -> list[Statement]:
        before: list[Statement] = []
        kind = C_TYPES[str(part.loop_var.ty.dtype)]
        last = self.expressions.text(part.min + part.extent)
        if _changes_its_end(part):
            # The number of rounds is that at the start.
            end = unique_name("end", self._taken)
            before.append(Line(f"const {kind} {end} = {last};"))
            last = end
        taken = set(self._taken)
        name = unique_name(_loop_name(str(part.loop_var.name)), self._taken)
        self.expressions.names[part.loop_var] = name
        body = self.statements(part.body)
        begin = self.expressions.text(part.min)
        self._taken = taken
        return [*before, loop(Loop(kind, name, begin, last, body))]

    def _allocate(self, buffer: Any) -> list[Statement]:
        elements = math.prod(int(extent) for extent in buffer.ty.shape)
        dtype = str(buffer.ty.dtype)
        if dtype not in C_TYPES:
            raise NotInCError(f"{dtype} has no C")
        made = _Buffer(unique_name(_buffer_name(str(buffer.name)), self._taken), dtype)
        self._buffers[buffer] = made
        if elements <= _STACK_BYTES // 4 and self._constant_indices.get(buffer, False):
            made.scalars = elements
            made.undeclared = set(range(elements))
            return []
        if str(buffer.name).endswith("_local"):
            # TVM makes such a buffer too small where a tile begins in the middle of an axis.
            raise RuntimeError("sums side by side are not each a variable")
        size = elements * int(re.sub(r"\D", "", dtype) or 8) // 8
        if size <= _STACK_BYTES:
            return [Line(f"{C_TYPES[dtype]} {made.name}[{elements}];")]
        start = -(-self.scratch // _ALIGNMENT) * _ALIGNMENT
        self.scratch = start + size
        place = f"(void *)((unsigned char *)scratch + {start})" if start else "scratch"
        return [Line(f"{C_TYPES[dtype]} *{made.name} = ({C_TYPES[dtype]} *){place};")]

    def _declarations(self) -> list[Statement]:
        """Declare the variables that are used in an inner block before they got a value."""
        lines: list[Statement] = []
        for buffer in self._buffers.values():
            if buffer.undeclared:
                # With a value: compilers can't see that the first round of a loop sets one.
                names = [_scalar(buffer, k) for k in sorted(buffer.undeclared)]
                lines += [Line(f"{C_TYPES[buffer.dtype]} {name} = 0;") for name in names]
                buffer.undeclared = set()
        return lines

    def _run(self, stores: list[Any]) -> list[Statement]:
        """Write stores one after another: test their common conditions once, and load once what
        several of them read."""
        done: list[Statement] = []
        groups: list[tuple[tuple[Condition, ...], list[Any]]] = []
        for store in stores:
            condition, plain = _without_padding(store)
            conditions = tuple(self._condition(c) for c in _parts(condition))
            if not groups or groups[-1][0] != conditions:
                groups.append((conditions, []))
            groups[-1][1].append(plain)
        for conditions, group in groups:
            if conditions:
                done += self._declarations()
                done.append(Guard(conditions, tuple(self._lines(group))))
            elif len(stores) > 1 and self._is_shared(group):
                lines = self._lines(group)
                done += [Scope(tuple(lines))] if _declares_values(lines) else lines
            else:
                done += self._lines(group)
        return done

    def _condition(self, condition: Any) -> Condition:
        names = self.expressions.names
        variables = frozenset(names[one] for one in nodes_in(condition, ir.Var) if one in names)
        return Condition(self.expressions.condition(condition), variables)

    def _is_shared(self, group: list[Any]) -> bool:
        """Return whether loading once for all is equivalent: no store writes what they read."""
        return all(not self._buffers[store.buffer].undeclared for store in group)

    def _lines(self, group: list[Any]) -> list[Statement]:
        written_to = {self._buffers[store.buffer].name for store in group}
        counts: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for store in group:
            texts = {}
            for load in nodes_in(store.value, ir.TensorLoad):
                buffer = self._buffers[load.source]
                if not buffer.scalars and buffer.name not in written_to:
                    texts[self._load_text(load)] = load
            for text, load in texts.items():
                counts[text] = load
                seen[text] = seen.get(text, 0) + 1
        lines: list[Statement] = []
        taken = set(self._taken)
        if self._is_shared(group):
            for text, load in counts.items():
                if seen[text] > 1:
                    buffer = self._buffers[load.source]
                    name = self._numbered(self._short.get(buffer.name, buffer.name))
                    lines.append(Line(f"const {C_TYPES[buffer.dtype]} {name} = {text};"))
                    self.expressions.replaced[text] = name
        lines += [Line(self._store(store)) for store in group]
        self.expressions.replaced.clear()
        self._taken = taken
        return lines

    def _store(self, store: Any) -> str:
        buffer = self._buffers[store.buffer]
        declared = ""
        index = self._index(store.indices)
        if buffer.scalars and int(store.indices[0]) in buffer.undeclared:
            buffer.undeclared.discard(int(store.indices[0]))
            declared = f"{C_TYPES[buffer.dtype]} "
        place = (
            _scalar(buffer, int(store.indices[0])) if buffer.scalars else f"{buffer.name}[{index}]"
        )
        for load in nodes_in(store.value, ir.TensorLoad):
            source = self._buffers[load.source]
            if not source.scalars:
                self._accesses.append(_Access(source.name, self._index(load.indices), place))
        value = store.value
        is_wide = buffer.dtype in ("float32", "float64", "int32", "int64")
        adds = isinstance(value, tirx.Add) and isinstance(value.a, ir.TensorLoad)
        if adds and is_wide and self.expressions.load(value.a) == place:
            if buffer.dtype.startswith("int") and may_overflow("+", value.a, value.b, buffer.dtype):
                added = self.expressions.helped(f"ek_add_{buffer.dtype}", value.a, value.b)
                return f"{place} = {added};"
            return f"{place} += {self.expressions.text(value.b)};"
        keeps = accumulates(store)
        text = self.expressions.accumulated(value) if keeps else self.expressions.text(value)
        if buffer.dtype == "bool":
            text = f"(uint8_t)({text})"
        return f"{declared}{place} = {text};"

    def _load_text(self, load: Any) -> str:
        buffer = self._buffers[load.source]
        if buffer.scalars:
            return _scalar(buffer, int(load.indices[0]))
        return f"{buffer.name}[{self._index(load.indices)}]"

    def _index(self, indices: Sequence[Any]) -> str:
        if len(indices) != 1:
            raise NotInCError("an index of several dimensions is left")
        outer, self.expressions.is_index = self.expressions.is_index, True
        text = self.expressions.text(indices[0])
        self.expressions.is_index = outer
        return text

    def _numbered(self, word: str) -> str:
        number = 0
        while f"{word}_{number}" in self._taken:
            number += 1
        self._taken.add(f"{word}_{number}")
        return f"{word}_{number}"


def _changes_its_end(part: Any) -> bool:
    """Return whether a loop's body writes to what its number of rounds is read from."""
    read = [load.source for end in (part.min, part.extent) for load in nodes_in(end, ir.TensorLoad)]
    stores = nodes_in(part.body, tirx.BufferStore) if read else []
    return any(one.same_as(store.buffer) for one in read for store in stores)


def _scalar(buffer: _Buffer, index: int) -> str:
    if buffer.scalars == 1:
        return buffer.name
    return f"{buffer.name}_{index}" if buffer.name[-1].isdigit() else f"{buffer.name}{index}"


def _declares_values(lines: Sequence[Statement]) -> bool:
    return any(isinstance(line, Line) and line.text.startswith("const ") for line in lines)


def _runs(parts: Sequence[Any]) -> Iterator[tuple[type, list[Any]]]:
    """Yield subsequent stores together, everything else alone."""
    run: list[Any] = []
    for part in parts:
        if isinstance(part, tirx.BufferStore):
            run.append(part)
            continue
        if run:
            yield tirx.BufferStore, run
            run = []
        if not _does_nothing(part):
            yield type(part), [part]
    if run:
        yield tirx.BufferStore, run


def _does_nothing(part: Any) -> bool:
    return isinstance(part, tirx.Evaluate) and isinstance(part.value, tirx.IntImm)


def _constant_indices(function: Any) -> dict[Any, bool]:
    """Return for each buffer whether every access to it names one constant element."""
    constant: dict[Any, bool] = {}

    def see(buffer: Any, indices: Any) -> None:
        is_number = len(indices) == 1 and isinstance(indices[0], tirx.IntImm)
        constant[buffer] = constant.get(buffer, True) and is_number

    tvm_ffi.structural_walk(
        function.body,
        (
            (ir.TensorLoad, lambda load: see(load.source, load.indices)),
            (tirx.BufferStore, lambda store: see(store.buffer, store.indices)),
        ),
    )
    return constant


def _parts(condition: Any) -> list[Any]:
    if condition is None:
        return []
    if isinstance(condition, tirx.And):
        return [*_parts(condition.a), *_parts(condition.b)]
    return [condition]


def _without_padding(store: Any) -> tuple[Any, Any]:
    """Return the condition and the step without padding, for a sum or maximum that reads padding:
    padding changes nothing, so the step is skipped for it."""
    value = store.value
    if not isinstance(value, (tirx.Add, tirx.Max)) or not _is_load_of(value.a, store):
        return None, store
    other = value.b
    least = isinstance(value, tirx.Max)
    if isinstance(other, tirx.Mul) and not least:
        for a, b in ((other.a, other.b), (other.b, other.a)):
            if _is_padded(a, 0.0):
                plain = tirx.Add(value.a, tirx.Mul(a.args[1], b))
                return a.args[0], tirx.BufferStore(store.buffer, plain, store.indices)
        return None, store
    if _is_padded(other, None if least else 0.0):
        kind = tirx.Max if least else tirx.Add
        return other.args[0], tirx.BufferStore(
            store.buffer, kind(value.a, other.args[1]), store.indices
        )
    return None, store


def _is_load_of(value: Any, store: Any) -> bool:
    return (
        isinstance(value, ir.TensorLoad)
        and value.source.same_as(store.buffer)
        and bool(tvm_ffi.structural_equal(value.indices, store.indices))
    )


def _is_padded(value: Any, padding: float | None) -> bool:
    """Match if_then_else(inside, element, padding); None is the lowest number of its kind."""
    if not isinstance(value, ir.Call) or not str(value.op.name).endswith(".if_then_else"):
        return False
    outside = value.args[2]
    if not isinstance(outside, (tirx.FloatImm, tirx.IntImm)):
        return False
    if padding is not None:
        return float(outside.value) == padding
    lowest = tirx.min_value(str(outside.ty.dtype))
    return float(outside.value) == float(lowest.value)


def _loop_name(name: str) -> str:
    base = name.partition("_")[0]
    word = _WORDS.get(base, base)
    if "_fused" in name:
        return "pixel" if base in ("nn", "yy", "xx") else "i"
    return re.sub(r"\W", "_", word)


def _buffer_name(name: str) -> str:
    if name.endswith("_local"):
        return "sum"
    plain = re.sub(r"\W", "_", re.sub(r"^T_|_intermediate.*$|_red$", "", name))
    return plain if re.match(r"[A-Za-z]", plain) else f"b_{plain}"
