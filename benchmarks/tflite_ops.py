"""TFLite's builtin operators, run on this machine as `edgekit deploy` runs a model, and as C.

    python -m benchmarks.tflite_ops                        # all; writes docs/tflite-operators.md
    python -m benchmarks.tflite_ops --filter CONV --verbose
    python -m benchmarks.tflite_ops --again wrong,crash    # these once more

Small models are made of every builtin operator, in float32, in quantised and plain integers, and
with weights of float16 and int8 (tests/support/tflite_typed.py, elementwise_tflite.py). LiteRT runs
each with its reference kernels; what it does not compute is not counted. The others are imported,
compiled, linked and run by the process that a deployment uses, and written as portable C,
and compared with LiteRT. The verdicts: right; refused (edgekit said why it cannot, in a typed
error); wrong; crash (anything else, a dying process or a time-out included).

Verdicts are kept in a cache, so that a run that was stopped goes on where it was. `--fresh` begins
again.
"""

from __future__ import annotations

import functools
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks import campaign
from benchmarks.campaign import ROOT, Task
from benchmarks.onnx_verdicts import reasons
from edgekit.models.tflite.operators import STATEFUL

if TYPE_CHECKING:
    from support.tflite_ways import Case

DOCS = ROOT / "docs" / "tflite-operators.md"
COMMAND = "python -m benchmarks.tflite_ops"
WAYS = ("library", "C")
CASES_AT_ONCE = 48
JUDGED = ("edgekit/aot", "edgekit/compiler", "edgekit/models")
"""The code that the page judges."""
ABSENT = "absent"
"""The verdict of a case that LiteRT does not compute."""


@dataclass(frozen=True)
class Verdict:
    case: str
    operator: str
    way: str
    verdict: str
    reason: str = ""


@functools.cache
def cases() -> dict[str, Case]:
    from support import elementwise_tflite, tflite_typed

    return {str(case): case for case in (*tflite_typed.cases(), *elementwise_tflite.cases())}


def judge(tasks: Sequence[Task]) -> dict[Task, list[Verdict]]:
    """Try some cases in both ways, in as few programs as there may be."""
    from support.tflite_ways import refusal_by_litert, verdicts

    chosen = [cases()[name] for (name,) in tasks]
    absent = {case: why for case in chosen if (why := refusal_by_litert(case))}
    found = [
        Verdict(str(case), case.operator, way, ABSENT, why)
        for case, why in absent.items()
        for way in WAYS
    ]
    taken = [case for case in chosen if case not in absent]
    for way in WAYS:
        for case, item in verdicts(taken, way).items():
            found.append(Verdict(str(case), case.operator, way, item.word, item.reason))
    return {task: [item for item in found if item.case == task[0]] for task in tasks}


def builtin_operators() -> dict[str, str]:
    """Return the operators of the schema, with why edgekit takes none of their uses, if so."""
    from ai_edge_litert import schema_py_generated as schema

    from edgekit.models.tflite.operators import why_never

    names = [name for name, at in vars(schema.BuiltinOperator).items() if isinstance(at, int)]
    return {name: why_never(name) or "" for name in sorted(names)}


def markdown(verdicts: Sequence[Verdict], version: str, left: int, fresh: bool) -> str:
    operators = builtin_operators()
    counted = [item for item in verdicts if item.verdict != ABSENT]
    tried = {item.operator for item in counted}
    lines = [
        "# TFLite operators",
        "",
        f"Written by `{COMMAND}` (`make tflite-tests`); do not edit.",
        "",
        f"{len({item.case for item in counted})} small models of {len(tried)} of the "
        f"{len(operators)} builtin operators in the schema of LiteRT {version}, in every type that "
        "LiteRT has a kernel for: float32, float16,",
        "integers, integers quantised to int8, uint8 and int16, weights in float16, and int8 "
        "weights of float inputs. Each is run by the process that",
        "`edgekit deploy` uses on this machine, and as portable C with undefined behaviour caught, "
        "and compared with LiteRT's reference kernels",
        "(elementwise float32 relative 2e-6, other float32 1e-4; elementwise int8 exactly, other "
        "quantised integers as [verify.md](verify.md) says; whole numbers exactly).",
        *([f"{left} more were not run."] if left else []),
        "",
        campaign.header(COMMAND, JUDGED, fresh),
        "| | right | refused with a reason | wrong | crashing |",
        "|---|---|---|---|---|",
    ]
    for way in WAYS:
        count = Counter(item.verdict for item in counted if item.way == way)
        cells = (count[word] for word in ("right", "refused", "wrong", "crash"))
        lines.append(f"| {way} | {' | '.join(map(str, cells))} |")
    lines += [
        "",
        "| operator | types that are right | right | refused | wrong or crashing | why |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_row(name, operators[name], counted, not left) for name in operators]
    return "\n".join([*lines, ""])


def _row(name: str, why: str, verdicts: Sequence[Verdict], is_whole: bool) -> str:
    own = [item for item in verdicts if item.operator == name]
    if not own:
        untried = "LiteRT has no kernel for it" if is_whole else "not run"
        return f"| {name} | | | | | {why or ELSEWHERE.get(name, untried)} |"
    count = Counter(item.verdict for item in own)
    bad = count["wrong"] + count["crash"]
    types = dict.fromkeys(type_of(item.case) for item in own if item.verdict == "right")
    cells = (", ".join(types), count["right"], count["refused"] or "", bad or "")
    found = [replace(item, reason=_plain(item.reason)) for item in own if item.verdict != "right"]
    return f"| {name} | {' | '.join(map(str, cells))} | {reasons(found)} |"


def _plain(reason: str) -> str:
    """Return a reason without the names of the file, the operator and its tensors."""
    reason = re.sub(r"^.*?cannot be imported: ", "", reason)
    reason = re.sub(r" [A-Z][A-Z0-9_]+ x\d+: .*$", "", reason)
    return re.sub(r"'?\bc\d+_\w+'?", "a tensor", reason)


_CALLING = (
    *("ASSIGN_VARIABLE", "CALL", "CALL_ONCE", "IF", "READ_VARIABLE", "VAR_HANDLE", "WHILE"),
    "DENSIFY",
)
_STATEFUL = "float32, int8 weights; SVDF in int8: tests/integration/models/test_tflite_recurrent.py"
ELSEWHERE = dict.fromkeys(STATEFUL, _STATEFUL) | dict.fromkeys(
    _CALLING, "[control flow, state](tflite.md) and sparse weights have tests of their own"
)


def type_of(case: str) -> str:
    """Return the type in the name of a case."""
    words = case.split("-")
    return next((word for word in reversed(words) if word in _KNOWN), words[-1])


_KNOWN = frozenset(
    (
        *("float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"),
        *("qint8", "quint8", "qint16", "float16 weights", "int8 weights"),
    )
)


def crashed(task: Task, reason: str) -> list[Verdict]:
    (name,) = task
    return [Verdict(name, cases()[name].operator, way, "crash", reason) for way in WAYS]


def main() -> int:
    options = campaign.parser(__doc__, DOCS).parse_args()
    from importlib.metadata import version

    from edgekit.base.tvm_compat import load_tvm

    load_tvm()  # once, before the workers are forked
    litert = version("ai-edge-litert")
    work = campaign.Campaign(
        f"tflite-operators-{litert}",
        DOCS,
        Verdict,
        judge,
        crashed,
        lambda verdicts, left, fresh: markdown(verdicts, litert, left, fresh),
        CASES_AT_ONCE,
    )
    tasks = [(name,) for name in cases() if re.search(options.filter, name)]
    return campaign.run(work, tasks, options)


if __name__ == "__main__":
    sys.exit(main())
