"""C text of the portable kernels: indented, with names of constants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from edgekit.aot.kernel import Kernel
from edgekit.aot.operators import Image
from edgekit.aot.program import Step
from edgekit.base.quoting import c_comment

Lines = Iterable[str]
MAKER = "edgekit"
INT8 = "int8_t"


def indented(lines: Lines) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]


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


def with_source(
    step: Step,
    comment: str,
    body: Lines,
    kernel: Kernel,
    inputs: Sequence[tuple[str, str]] = ((INT8, "input"),),
    output: tuple[str, str] = (INT8, "output"),
) -> Kernel:
    """Return a kernel with its source: the step's function of this body."""
    mark = "" if kernel.in_place else "restrict "
    parameters = [f"const {kind} *{mark}{name}" for kind, name in inputs]
    parameters.append(f"{output[0]} *{mark}{output[1]}")
    if kernel.scratch:
        parameters.append("void *scratch")
    head = f"static {'int' if kernel.tells else 'void'} {step.name}({', '.join(parameters)})"
    lines = [f"/* {c_comment(comment)} */", *_wrapped(head), "{", *indented(body), "}"]
    return replace(kernel, source="\n".join(lines) + "\n")


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
