"""Verdicts on ONNX's node cases, and what docs and tests get of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks import figures
from benchmarks.doc_table import END_MARK

RTOL, ATOL = 1e-3, 1e-5
JUDGED = ("edgekit/compiler", "edgekit/models")
"""The code that the page judges."""
MARK = "<!-- benchmarks/onnx_nodes.py --twin -->\n"
"""Before what the sample gave, in docs/onnx-operators.md."""


LEFT_MARK = "<!-- benchmarks/onnx_nodes.py --offload onnxruntime --refused -->\n"
"""Before the counts in docs/onnxruntime.md."""


@dataclass(frozen=True)
class Verdict:
    case: str
    operator: str
    verdict: str
    reason: str = ""
    seconds: float = 0.0
    regions: int = 0
    """How many of them backends ran."""


class HasReason(Protocol):
    @property
    def reason(self) -> str: ...


def markdown(verdicts: Sequence[Verdict], version: str, from_twin: str) -> str:
    """The page; `from_twin` is what an earlier run with `--twin` left in it."""
    totals = Counter(item.verdict for item in verdicts)
    lines = [
        "# ONNX operators",
        "",
        "Written by `python benchmarks/onnx_nodes.py` (`make node-tests`); do not edit.",
        "",
        f"The {len(verdicts)} node cases of onnx {version}, imported, compiled, linked and run by "
        "the process that `edgekit deploy` uses on this machine (no compiler in it),",
        f"and compared with the outputs that come with them (relative {RTOL:g}, absolute "
        f"{ATOL:g}; bfloat16 to two units in the last place; whole numbers exactly).",
        "Inputs that only decide shapes (axes, shapes, pads, counts) are bound as constants.",
        "",
        figures.header("python benchmarks/onnx_nodes.py", JUDGED),
        "| right | refused with a reason | wrong | crashing |",
        "|---|---|---|---|",
        f"| {totals['right']} | {totals['refused']} | {totals['wrong']} | {totals['crash']} |",
        "",
        f"{MARK}{from_twin}{END_MARK}",
        "| operator | right | refused | wrong or crashing | why |",
        "|---|---|---|---|---|",
    ]
    for operator in sorted({item.operator for item in verdicts}, key=str.lower):
        own = [item for item in verdicts if item.operator == operator]
        count = Counter(item.verdict for item in own)
        bad = count["wrong"] + count["crash"]
        lines.append(
            f"| {operator} | {count['right']} | {count['refused'] or ''} | {bad or ''} "
            f"| {reasons(own)} |"
        )
    return "\n".join([*lines, ""])


def sampled(page: Path) -> str:
    """What an earlier run with `--twin` left in the page."""
    return page.read_text().partition(MARK)[2].partition(END_MARK)[0]


def reasons(verdicts: Sequence[HasReason]) -> str:
    """The distinct reasons, without the names of nodes, most frequent first."""
    texts = Counter(
        re.sub(r" \(node '[^']*'[^)]*\)", "", item.reason).replace("|", "\\|")
        for item in verdicts
        if item.reason
    )
    return "<br>".join(f"{text} ({count})" for text, count in texts.most_common(4))


def expectations(verdicts: Sequence[Verdict]) -> str:
    """The names of the cases by verdict, for tests/integration/models/test_onnx_nodes.py."""
    lists = {
        verdict: sorted(item.case for item in verdicts if item.verdict == verdict)
        for verdict in ("right", "refused")
    }
    return json.dumps(lists, indent=0) + "\n"


def section(verdicts: Sequence[Verdict]) -> str:
    """What the docs say of a sample."""
    count = Counter(item.verdict for item in verdicts)
    lines = [
        f"On an emulated Raspberry Pi 4, the smallest right case of each of {len(verdicts)} "
        "operators was built for the board,",
        "sent over SSH, run by the agent and compared in the same way (`make node-tests-twin`): "
        f"{count['right']} right, {count['refused']} refused,",
        f"{count['wrong']} wrong, {count['crash']} failed. Of any other operator every case is "
        "refused on this machine too.",
    ]
    rest = [item for item in verdicts if item.verdict != "right"]
    if rest:
        lines += ["", "| operator | case | verdict | why |", "|---|---|---|---|"]
    for item in rest:
        word = "failed" if item.verdict == "crash" else item.verdict
        reason = item.reason.replace("|", "\\|")
        lines.append(f"| {item.operator} | `{item.case}` | {word} | {reason} |")
    return "\n".join(lines)


def left_section(verdicts: Sequence[Verdict]) -> str:
    """What docs/onnxruntime.md says of cases that are refused without the backend."""
    count = Counter(item.verdict for item in verdicts)
    ends = sum("which devices don't take" in v.reason or "is of type" in v.reason for v in verdicts)
    operators = {item.operator for item in verdicts if item.verdict == "right"}
    names = ", ".join(f"`{operator}`" for operator in sorted(operators, key=str.lower))
    return (
        f"Of the {len(verdicts)} node cases of ONNX that edgekit refuses ([onnx-operators.md]"
        f"(onnx-operators.md)), {count['right']} come out right with this backend,\n"
        f"{count['refused']} are refused still, {count['wrong']} are wrong, {count['crash']} "
        "crash. The outputs that they are compared with are those of ONNX itself.\n"
        f"Of the refused ones {ends} have an input that no device takes. Right are "
        f"cases of {names}."
    )
