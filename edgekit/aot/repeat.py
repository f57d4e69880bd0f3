"""A loop or a branch as one step in C: the functions of the steps that it runs, and one that calls
them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgekit.aot.arena import ALIGNMENT, plan_arena
from edgekit.aot.c_text import C_TYPES
from edgekit.aot.kernel import Constant, Kernel
from edgekit.aot.operators import Branch, Loop, Weight
from edgekit.aot.program import Program, Step


@dataclass(frozen=True)
class _Body:
    """A list of steps inside a function, which calls their inputs given0, … and their results
    made0, …"""

    program: Program
    calls: tuple[str, ...]
    bytes: int


def controlled(step: Step, what: Loop | Branch, kernels: Sequence[Sequence[Kernel]]) -> Kernel:
    """Return the step's function; `kernels` are those of each body's steps."""
    bodies = [_body(*pair) for pair in zip(what.bodies, kernels, strict=True)]
    inner = [kernel for each in kernels for kernel in each]
    tells = any(kernel.tells for kernel in inner)
    memory = max(body.bytes for body in bodies)
    if isinstance(what, Loop):
        copies = []
        for buffer in what.body.results[: what.rule.states]:
            copies.append(memory)
            memory += -(-what.body.buffers[buffer].bytes // ALIGNMENT) * ALIGNMENT
        lines = _repeating(step, what, bodies[0], copies)
    else:
        lines = _branching(step, what, bodies)
    held = {k: one.array for k, one in enumerate(what.operands) if isinstance(one, Weight)}
    constants = [Constant(f"held_{k}", array, ALIGNMENT) for k, array in held.items()]
    steps = [own for body in what.bodies for own in body.steps]
    for own, kernel in zip(steps, inner, strict=True):
        part = own.name.removeprefix(f"{step.name}_")
        constants += [
            Constant(f"{part}_{one.name}", one.array, one.alignment) for one in kernel.constants
        ]
    head = _head(step, what, has_memory=memory > 0, tells=tells)
    end = ["    return status;"] if tells else []
    sources = [kernel.source.rstrip("\n") + "\n" for kernel in inner]
    return Kernel(
        maker=", ".join(dict.fromkeys(kernel.maker for kernel in inner)) or "edgekit",
        source="\n".join([*sources, *head, *lines, *end, "}"]) + "\n",
        constants=tuple(constants),
        helpers=tuple(dict.fromkeys(helper for kernel in inner for helper in kernel.helpers)),
        headers=tuple(dict.fromkeys(header for kernel in inner for header in kernel.headers)),
        scratch=memory,
        checks=tuple(dict.fromkeys(check for kernel in inner for check in kernel.checks)),
        tells=tells,
        library_sources=tuple(
            dict.fromkeys(source for kernel in inner for source in kernel.library_sources)
        ),
        instructions=_instructions(what, kernels),
        note=_note(what),
    )


def _instructions(what: Loop | Branch, kernels: Sequence[Sequence[Kernel]]) -> int | None:
    """Return the most instructions of a run; None if unknown."""
    sums = []
    for each in kernels:
        known = [kernel.instructions for kernel in each if kernel.instructions is not None]
        if len(known) != len(each) or what.rule.times_unknown:
            return None
        sums.append(sum(known))
    return what.rule.times * max(sums)


def _note(what: Loop | Branch) -> str:
    if isinstance(what, Branch):
        first, second = (len(body.steps) for body in what.bodies)
        return f"data decides between {first} and {second} steps"
    steps, rule = len(what.body.steps), what.rule
    if rule.count is None:
        return f"{steps} steps until data ends them"
    return f"{'at most ' if rule.data_ends else ''}{rule.count} times {steps} steps"


def _body(program: Program, kernels: Sequence[Kernel]) -> _Body:
    arena = plan_arena(program, kernels)
    places = {k: f"at + {offset}" for k, offset in enumerate(arena.buffers)}
    calls = []
    for own, kernel, scratch in zip(program.steps, kernels, arena.scratch, strict=True):
        given = [_pointer(program, k, places[k], "const ") for k in own.inputs]
        made = [_pointer(program, k, places[k], "") for k in own.outputs]
        extra = [f"at + {scratch}"] if kernel.scratch else []
        call = f"{own.name}({', '.join([*given, *made, *extra])})"
        calls.append(f"if ({call} != 0) status = 1;" if kernel.tells else f"{call};")
    return _Body(program, tuple(calls), arena.bytes)


def _head(step: Step, what: Loop | Branch, *, has_memory: bool, tells: bool) -> Iterator[str]:
    body, own = what.bodies[0], what.rule.own
    kinds = ["uint8_t"] * own + [_type(body, k) for k in range(len(body.inputs))]
    parameters = [
        f"const {kind} *in{k}"
        for k, (operand, kind) in enumerate(zip(what.operands, kinds, strict=True))
        if not isinstance(operand, Weight)
    ]
    parameters += [f"{_type(body, k)} *out{place}" for place, k in enumerate(body.results)]
    parameters += ["void *scratch"] if has_memory else []
    yield f"static {'int' if tells else 'void'} {step.name}({', '.join(parameters)})"
    yield "{"
    if has_memory:
        yield "    unsigned char *const at = (unsigned char *)scratch;"
        yield "    (void)at;"
    if tells:
        yield "    int status = 0;"


def _operand(step: Step, what: Loop | Branch, place: int) -> str:
    held = isinstance(what.operands[place], Weight)
    return f"{step.name}_held_{place}" if held else f"in{place}"


def _branching(step: Step, branch: Branch, bodies: Sequence[_Body]) -> Iterator[str]:
    """Yield the statements that run one of two bodies."""
    own = branch.rule.own
    heads = (f"    if (*{_operand(step, branch, 0)} != 0) {{", "    } else {")
    for head, body in zip(heads, bodies, strict=True):
        yield head
        program = body.program
        for k in range(len(program.inputs)):
            given = _operand(step, branch, own + k)
            yield f"        const {_type(program, k)} *const given{k} = {given};"
        for place, k in enumerate(program.results):
            yield f"        {_type(program, k)} *const made{place} = out{place};"
        for k in range(len(program.inputs)):
            yield f"        (void)given{k};"
        yield from (f"        {call}" for call in body.calls)
    yield "    }"


def _repeating(step: Step, loop: Loop, made: _Body, copies: Sequence[int]) -> Iterator[str]:
    """Yield the statements that repeat the body. An iteration writes the states to the outputs, the
    next one to the copies, and so on; where their number is known, the last one writes to the
    outputs."""
    rule, body = loop.rule, loop.body
    known = 0 if rule.data_ends or rule.count is None else rule.count - 1
    """An iteration whose number is as odd as this one writes to the outputs."""
    states = range(len(rule.sliced), rule.fixed)
    sources = [_operand(step, loop, k) for k in range(len(loop.operands))]
    conditions = [] if rule.count is None else [f"k < {rule.count}u"]
    yield "    size_t k = 0;"
    if rule.data_ends:
        yield f"    const uint8_t *goes_on = {sources[states.start]};"
        conditions.append("*goes_on != 0")
    yield f"    for (; {' && '.join(conditions)}; ++k) {{"
    for k, source in enumerate(sources):
        if k < len(rule.sliced):
            source = _moved(source, rule.count, body, k, backwards=rule.sliced[k])
        elif k in states:
            place = k - states.start
            copy = _pointer(body, body.results[place], f"at + {copies[place]}", "const ", at=True)
            source = f"k == 0 ? {source} : k % 2 == {(known + 1) % 2}u ? out{place} : {copy}"
        yield f"        const {_type(body, k)} *const given{k} = {source};"
    for place, k in enumerate(body.results):
        target = f"out{place}"
        if place < rule.states:
            copy = _pointer(body, k, f"at + {copies[place]}", "", at=True)
            target = f"k % 2 == {known % 2}u ? {target} : {copy}"
        else:
            backwards = rule.stacked[place - rule.states]
            target = _moved(target, rule.count, body, k, backwards=backwards)
        yield f"        {_type(body, k)} *const made{place} = {target};"
    for k in range(len(loop.operands)):
        yield f"        (void)given{k};"
    yield from (f"        {call}" for call in made.calls)
    if rule.data_ends:
        yield "        goes_on = made0;"
    yield "    }"
    if rule.data_ends:
        for place, (k, offset) in enumerate(zip(body.results, copies, strict=False)):
            last = f"k == 0 ? (const void *){sources[states.start + place]} : at + {offset}"
            size = body.buffers[k].bytes
            yield f"    if (k % 2 == 0) memcpy(out{place}, {last}, {size}u);"


def _moved(pointer: str, count: int | None, body: Program, buffer: int, *, backwards: bool) -> str:
    place = f"({(count or 1) - 1}u - k)" if backwards else "k"
    return f"{pointer} + {place} * {body.buffers[buffer].elements}u"


def _type(body: Program, buffer: int) -> str:
    return C_TYPES[body.buffers[buffer].dtype]


def _pointer(body: Program, buffer: int, place: str, qualifier: str, *, at: bool = False) -> str:
    """Return the address of a buffer of the body; with `at`, that place for it."""
    if not at and buffer < len(body.inputs):
        return f"given{buffer}"
    if not at and buffer in body.results:
        return f"made{body.results.index(buffer)}"
    return f"({qualifier}{_type(body, buffer)} *)(void *)({place})"
