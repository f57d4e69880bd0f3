"""C text of the portable kernels: indented, with names of constants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from edgekit.aot.operators import Image
from edgekit.aot.program import Step
from edgekit.base.quoting import c_comment

Lines = Iterable[str]
MAKER = "edgekit"
INT8 = "int8_t"


def indented(lines: Lines, depth: int = 1) -> list[str]:
    return [("    " * depth + line) if line else "" for line in lines]


def block(head: str, lines: Lines) -> list[str]:
    """Return a head, and lines in braces."""
    return [f"{head} {{", *indented(lines), "}"]


def loop(index: str, count: int, lines: Lines) -> list[str]:
    """Return a loop over a known count; a single round needs no loop."""
    inner = list(lines)
    if count != 1:
        return block(f"for (int32_t {index} = 0; {index} < {count}; {index}++)", inner)
    used = any(re.search(rf"\b{index}\b", line) for line in inner)
    return ["{", *indented([*([f"const int32_t {index} = 0;"] if used else []), *inner]), "}"]


def function(
    step: Step,
    comment: str,
    inputs: Sequence[tuple[str, str]],
    output: tuple[str, str],
    body: Lines,
    *,
    shared: bool = False,
    scratch: bool = False,
    tells: bool = False,
) -> str:
    """Return the step's function; `shared` where its output may use its first input's memory,
    `tells` where it returns a status."""
    mark = "" if shared else "restrict "
    parameters = [f"const {kind} *{mark}{name}" for kind, name in inputs]
    parameters.append(f"{output[0]} *{mark}{output[1]}")
    if scratch:
        parameters.append("void *scratch")
    head = f"static {'int' if tells else 'void'} {step.name}({', '.join(parameters)})"
    lines = [f"/* {c_comment(comment)} */", *_wrapped(head), "{", *indented(body), "}"]
    return "\n".join(lines) + "\n"


def _wrapped(head: str) -> list[str]:
    if len(head) <= 100:
        return [head]
    name, _, parameters = head.partition("(")
    return [
        f"{name}(",
        *(f"    {part.strip()}" for part in parameters.replace(", ", ",\n").split("\n")),
    ]


def extents(source: Image, result: Image) -> str:
    """Describe the sizes of input and output, for a comment."""
    sizes = (f"{image.height}x{image.width}x{image.channels}" for image in (source, result))
    return " to ".join(sizes)


def plus(term: int) -> str:
    """Return `+ 3`, `- 3`, or nothing."""
    if term == 0:
        return ""
    return f" + {term}" if term > 0 else f" - {-term}"
