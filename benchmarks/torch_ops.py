"""PyTorch's operators, run on this machine as `edgekit deploy` runs a model.

    python benchmarks/torch_ops.py            # all; writes docs/torch-operators.md
    python benchmarks/torch_ops.py --filter '^linalg' --verbose
    python benchmarks/torch_ops.py --types float32,bool # one call of each, in these types
    python benchmarks/torch_ops.py --again wrong,crash  # these once more

Every operator of `op_db`, with which PyTorch tests itself, is called with small samples of every
type that it takes. Each call is exported, converted to ONNX, imported, compiled, linked, run in the
process that a deployment uses and compared with PyTorch. The verdicts: right; refused (edgekit said
why it can't, in a typed error); wrong; crash (anything else, a dying process or a time-out
included); unexported (PyTorch itself cannot export the call); random (two calls may differ).

Verdicts are kept in a cache, so that a run that was stopped goes on where it was. `--fresh` begins
again.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import campaign
from benchmarks.campaign import ROOT, Task

if TYPE_CHECKING:
    import torch

    from benchmarks.torch_cases import Call
    from edgekit.models.model import UnsupportedOperator

DOCS = ROOT / "docs" / "torch-operators.md"
CALLS_AT_ONCE = 24
JUDGED = ("edgekit/compiler", "edgekit/models")
"""The code that the page judges."""
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 4e-3, "bfloat16": 3.2e-2}
"""Relative to the element; a tenth of it relative to the largest element of the tensor."""

HALVES = ("torch.float16", "torch.bfloat16")


@dataclass(frozen=True)
class Verdict:
    call: str
    verdict: str
    reason: str = ""

    @property
    def operator(self) -> str:
        return self.call.partition("-")[0]


def judge(tasks: Sequence[Task]) -> dict[Task, list[Verdict]]:
    """Try all calls of some operators, in as few programs as there may be.

    A task is an operator, and the only type in which it is called; all without one.
    """
    from benchmarks.torch_cases import calls, operators

    found: dict[str, Verdict] = {}
    made = {task: list(calls(task[0], operators()[task[0]], task[1])) for task in tasks}
    rest = []
    for (name, _), own in made.items():
        for call in own:
            word, reason = _exportable(name, call)
            if word == "exported":
                rest.append(call)
            else:
                found[call.name] = Verdict(call.name, word, reason)
    found |= {item.call: item for item in _judged(rest)}
    return {task: [found[call.name] for call in own] for task, own in made.items()}


def _exportable(name: str, call: Call) -> tuple[str, str]:
    import torch

    from benchmarks.torch_cases import UNINITIALISED, Program
    from edgekit.models.torch.program import first_line

    try:
        program = torch.export.export(
            Program([call]).eval(), tuple(x.clone() for x in call.tensors)
        )
    except Exception as error:  # noqa: BLE001 -- PyTorch refuses in many ways
        return "unexported", first_line(error)[:200]
    if name.partition(".")[0] in UNINITIALISED:
        return "random", "its values are undefined"
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(program.module()(*(x.clone() for x in call.tensors)))
    pairs = zip(*results, strict=True)
    if any(x.layout != torch.strided for x in results[0]):
        return "exported", ""
    if not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs):
        return "random", "it draws random numbers"
    return "exported", ""


def _judged(chosen: Sequence[Call]) -> Iterator[Verdict]:
    """Yield a verdict for each call. They run in one program, without those that hold an operator
    that cannot be compiled; where that fails, in halves of it."""
    from edgekit.base.errors import ModelError, UnsupportedModelError

    if not chosen:
        return
    try:
        results = run(chosen)
    except Uncompilable as refusal:
        for call, reason in refusal.reasons.items():
            yield Verdict(call.name, "refused", reason)
        yield from _judged([call for call in chosen if call not in refusal.reasons])
        return
    except (ModelError, UnsupportedModelError) as error:
        outcome = Verdict(chosen[0].name, "refused", " ".join((error.message, *error.details)))
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the finding
        lines = str(error).strip().splitlines() or [""]
        outcome = Verdict(chosen[0].name, "crash", f"{type(error).__name__}: {lines[-1][:300]}")
    else:
        for call in chosen:
            wanted = [as_array(x) for x in call([x.clone() for x in call.tensors])]
            found, results = results[: len(wanted)], results[len(wanted) :]
            problems = _problems(found, wanted)
            if problems and any(str(x.dtype) in HALVES for x in call.tensors):
                problems = _problems(found, _widely(call, wanted))
            yield Verdict(call.name, "wrong" if problems else "right", "; ".join(problems))
        return
    if len(chosen) == 1:
        yield outcome
        return
    half = (len(chosen) + 1) // 2
    yield from _judged(chosen[:half])
    yield from _judged(chosen[half:])


def _problems(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> list[str]:
    pairs = zip(found, wanted, strict=True)
    return [problem for pair in pairs if (problem := difference(*pair))]


def _widely(call: Call, wanted: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return what PyTorch computes of the same numbers in float32, in the types of its results."""
    results = call([x.float() if str(x.dtype) in HALVES else x for x in call.tensors])
    pairs = zip(results, wanted, strict=True)
    return [as_array(x).astype(y.dtype) if x.is_floating_point() else y for x, y in pairs]


class Uncompilable(Exception):
    """Raised if calls of a program hold an operator that cannot be compiled."""

    def __init__(self, reasons: dict[Call, str]) -> None:
        super().__init__(len(reasons))
        self.reasons = reasons


def run(chosen: Sequence[Call]) -> list[np.ndarray]:
    """Deploy the calls as one program on this machine, and return its results."""
    import torch

    from benchmarks.torch_cases import Program
    from edgekit.backends.offloading import compile_model
    from edgekit.base.events import SILENT
    from edgekit.base.tensors import TensorSpec
    from edgekit.models import onnx
    from edgekit.models.model import ModelSource
    from edgekit.models.torch.archive import read_program
    from edgekit.models.torch.exporter import export
    from edgekit.profiles.board import load_board

    sys.path.append(str(ROOT / "tests"))
    from support.deployed import run_deployed

    tensors = tuple(x.clone() for call in chosen for x in call.tensors)
    with tempfile.TemporaryDirectory() as folder:
        program, converted = Path(folder) / "model.pt2", Path(folder) / "model.onnx"
        torch.export.save(torch.export.export(Program(chosen).eval(), tensors), program)
        inputs = tuple(
            TensorSpec(spec.name, spec.dtype, tuple(int(extent) for extent in spec.shape))
            for spec in read_program(program).outline.inputs
        )
        export(program, inputs, converted)
        digest = hashlib.sha256(converted.read_bytes()).hexdigest()
        source = ModelSource(converted, "onnx", digest)
        reasons = _uncompilable(chosen, converted, onnx.scan(source).unsupported)
        if reasons:
            raise Uncompilable(reasons)
        model = onnx.load(source, SILENT)
    compiled = compile_model(model, load_board("local").target, linked=True)
    return list(run_deployed(compiled, [as_array(x) for x in tensors]))


def _uncompilable(
    chosen: Sequence[Call], converted: Path, unsupported: Sequence[UnsupportedOperator]
) -> dict[Call, str]:
    """Return the calls whose results depend on an operator that cannot be compiled."""
    import onnx

    from edgekit.models.onnx.graph import opsets_of
    from edgekit.models.onnx.scanning import is_supported

    model = onnx.load(converted)
    why = {item.name: f"{item.name} can't be compiled: {item.reason}" for item in unsupported}
    about: dict[str, str] = {}
    for node in model.graph.node:
        name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        lacks = not is_supported(node.domain, node.op_type, opsets_of(model))
        inherited = (about[each] for each in node.input if each in about)
        reason = why.get(name) if lacks else next(inherited, None)
        if reason:
            about |= dict.fromkeys(node.output, reason)
    reasons: dict[Call, str] = {}
    ends = [output.name for output in model.graph.output]
    for call in chosen:
        count = len(call([x.clone() for x in call.tensors]))
        reason = next((about[name] for name in ends[:count] if name in about), None)
        ends = ends[count:]
        if reason:
            reasons[call] = reason
    return reasons


def as_array(value: torch.Tensor) -> np.ndarray:
    import ml_dtypes
    import torch

    value = value.detach().resolve_conj().resolve_neg().contiguous()
    if value.dtype == torch.bfloat16:
        array = value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    else:
        array = value.numpy()
    return np.asarray(array)


def difference(found: np.ndarray, wanted: np.ndarray) -> str:
    """Return what is wrong with the numbers; nothing if they are right."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{list(found.shape)} for {wanted.dtype}{list(wanted.shape)}"
    tolerance = TOLERANCES.get(wanted.dtype.name)
    if tolerance is None:
        wrong = found != wanted
    else:
        ours, theirs = found.astype("float64"), wanted.astype("float64")
        sizes = np.abs(theirs[np.isfinite(theirs)])
        scale = float(sizes.max()) if sizes.size else 0.0
        with np.errstate(invalid="ignore"):
            wrong = ~np.isclose(ours, theirs, tolerance, tolerance / 10 * scale, equal_nan=True)
    if not wrong.any():
        return ""
    first = tuple(int(k) for k in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements; at {list(first)} {found[first]} "
        f"instead of {wanted[first]}"
    )


def markdown(
    verdicts: Sequence[Verdict], version: str, types: Sequence[str], left: int, fresh: bool
) -> str:
    words = ("right", "refused", "wrong", "crash", "unexported", "random")
    totals = Counter(item.verdict for item in verdicts)
    names = sorted({item.operator for item in verdicts}, key=str.lower)
    each = (
        f"one in each of {', '.join(types)} (`--types`)"
        if any(types)
        else "up to three in float32, and one in each other type that the operator takes"
    )
    lines = [
        "# PyTorch operators",
        "",
        "Written by `python benchmarks/torch_ops.py` (`make torch-tests`); do not edit.",
        "",
        f"{len(verdicts)} calls of {len(names)} operators of PyTorch {version}, from the samples "
        "that PyTorch tests itself with (`op_db`):",
        f"{each}. Each call is exported, converted to ONNX, imported, compiled, linked",
        "and run by the process that `edgekit deploy` uses on this machine, and compared with "
        "PyTorch (relative to the element",
        ", ".join(f"{kind} {value:g}" for kind, value in TOLERANCES.items())
        + ", and a tenth of that relative to the largest; whole numbers exactly).",
        *([f"{left} more were not run."] if left else []),
        "Results in half precision are right too if they are PyTorch's of the same numbers in "
        "float32, rounded.",
        "Complex results are compared as pairs of real numbers. *Not exported*: PyTorch cannot "
        "export the call. *Not comparable*: two calls",
        "of PyTorch's differ, or its values are undefined.",
        "",
        campaign.header("python benchmarks/torch_ops.py", JUDGED, fresh),
        "| right | refused with a reason | wrong | crashing | not exported | not comparable |",
        "|---|---|---|---|---|---|",
        f"| {' | '.join(str(totals[word]) for word in words)} |",
        "",
        "| operator | right | refused | wrong or crashing | not exported | not comparable | why |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        own = [item for item in verdicts if item.operator == name]
        count = Counter(item.verdict for item in own)
        bad = count["wrong"] + count["crash"]
        cells = (count["refused"], bad, count["unexported"], count["random"])
        lines.append(
            f"| {name} | {count['right']} | {' | '.join(str(cell or '') for cell in cells)} "
            f"| {_reasons(own)} |"
        )
    return "\n".join([*lines, ""])


def _reasons(verdicts: Sequence[Verdict]) -> str:
    texts = Counter(
        re.sub(r" \(node '[^']*'[^)]*\)", "", item.reason).replace("|", "\\|").replace("](", "] (")
        for item in verdicts
        if item.verdict in ("refused", "wrong", "crash", "unexported")
    )
    return "<br>".join(f"{text} ({count})" for text, count in texts.most_common(3))


def crashed(task: Task, reason: str) -> list[Verdict]:
    return [Verdict("-".join(filter(None, task)), "crash", reason)]


def main() -> int:
    parser = campaign.parser(__doc__, DOCS)
    parser.add_argument("--types", default="", help="one call of each in these types, with commas")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from edgekit.base.tvm_compat import load_tvm

    load_tvm()  # once, before the workers are forked
    import torch

    import edgekit.models.onnx.loading
    import edgekit.models.torch.exporter  # noqa: F401
    from benchmarks.torch_cases import operators

    torch.set_num_threads(1)
    types = options.types.split(",")
    work = campaign.Campaign(
        f"torch-operators-{torch.__version__}",
        DOCS,
        Verdict,
        judge,
        crashed,
        lambda verdicts, left, fresh: markdown(verdicts, torch.__version__, types, left, fresh),
        CALLS_AT_ONCE if options.types else CALLS_AT_ONCE // 3,
    )
    names = [name for name in operators() if re.search(options.filter, name)]
    return campaign.run(work, [(name, kind) for kind in types for name in names], options)


if __name__ == "__main__":
    sys.exit(main())
