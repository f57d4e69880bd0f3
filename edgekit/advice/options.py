"""Lists the options for running a model on a board, and which are available."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.advice.words import Answers, HotSpot, Option, Subject
from edgekit.backends.base import HasAdvice
from edgekit.backends.registry import backend_names, kernel_backend_names, load_backend
from edgekit.base.errors import EdgekitError, MissingToolError
from edgekit.base.options import option
from edgekit.base.own_backends import leftovers_backend
from edgekit.base.wording import counted, number, percent
from edgekit.building.products import product_of

if TYPE_CHECKING:
    from edgekit.advice.summary import ModelSummary
    from edgekit.backends.base import Decision
    from edgekit.backends.partition import Partition
    from edgekit.models.model import ModelSource
    from edgekit.profiles.board import Board

TUNED = "tuned TVM"
_FEW_REGIONS = 4
_NEARLY_ALL = 0.9
_ALL = "all of it"


def _not_measured() -> str:
    return f"not measured; {option('measure')} does"


def options_of(subject: Subject, board: Board) -> tuple[Option, ...]:
    deploy = f"edgekit deploy {in_shell(subject.source)} --board {board.name}"
    options = [_own(board, deploy)]
    if product_of(board).tuning_pays:
        options.append(_tuned(subject, board))
    for name in board.offload.allowed:
        if name == leftovers_backend([name]):
            continue  # for models that are refused without it: never a way to be faster
        if name in kernel_backend_names():
            options.append(_beside_own(subject.summary, name, deploy))
        elif name in backend_names():
            options.append(_library(subject, board, name, f"{deploy} --offload {name}"))
        else:
            reason = "no: this edgekit has no backend of that name"
            options.append(Option(name, "library", False, "", _refused(reason)))
    if not is_quantised(subject.summary):
        options.append(_int8(subject.source, board))
    return tuple(options)


def hot_spot_of(subject: Subject) -> HotSpot | None:
    """Return the operator with the most multiply-accumulates."""
    from edgekit.backends.offloading import partition_model
    from edgekit.backends.partition import Selection

    if subject.summary.cost is None or not subject.summary.cost.macs:
        return None
    decisions = partition_model(subject.model, Selection(())).decisions
    shares = _macs_by(decisions)
    if not shares:
        return None
    operator = max(shares, key=lambda name: shares[name])
    return HotSpot(operator, shares[operator] / sum(shares.values()))


def _macs_by(decisions: Sequence[Decision]) -> dict[str, int]:
    found: dict[str, int] = {}
    for decision in decisions:
        if decision.macs:
            found[decision.operator] = found.get(decision.operator, 0) + decision.macs
    return found


def _own(board: Board, deploy: str) -> Option:
    answers = Answers("yes: it needs nothing but the board's compiler", _not_measured(), _ALL)
    own = product_of(board).own_option
    return Option(own, "kernels", True, f"{deploy} --offload none", answers)


def _tuned(subject: Subject, board: Board) -> Option:
    from edgekit.tuning.earlier_gain import earlier_gain

    gain = earlier_gain(subject.model, board.target, subject.store)
    reasons: tuple[str, ...] = ()
    if gain is None:
        faster = "not measured: nothing was tuned for this model and CPU"
    else:
        ratio = gain.own_us / gain.best_us if gain.best_us else 1.0
        faster = (
            f"{number(ratio)} times as fast in the {gain.measured} of "
            f"{counted(gain.kernels, 'kernel')} that were measured on {', '.join(gain.devices)}"
        )
        reasons = ("builds use the measured kernels without an option",)
    return Option(
        TUNED,
        "tuned",
        True,
        f"edgekit tune {in_shell(subject.source)} --board {board.name}",
        Answers("yes: kernels of convolutions, products and the like have choices", faster, _ALL),
        reasons,
    )


def _beside_own(summary: ModelSummary, name: str, deploy: str) -> Option:
    if not is_quantised(summary):
        return Option(
            name,
            "library",
            False,
            f"{deploy} --offload {name}",
            _refused("no: it computes in integers, and this model in floats"),
        )
    words = "yes: layer by layer, whichever of it and edgekit's own kernel costs less"
    answers = Answers(words, _not_measured(), "decided for each layer")
    return Option(name, "library", True, f"{deploy} --offload {name}", answers)


def _library(subject: Subject, board: Board, name: str, command: str) -> Option:
    from edgekit.backends.offloading import partition_model
    from edgekit.backends.plan import plan_offload, selection_of
    from edgekit.profiles.offload import ProjectOffload

    try:
        plan = plan_offload(board, ProjectOffload(), (name,), store=subject.store)
        found = partition_model(subject.model, selection_of(plan))
    except EdgekitError as error:
        return Option(name, "library", False, command, _refused(f"no: {error.message}"))
    macs = sum(decision.macs for decision in found.decisions)
    taken = sum(decision.macs for decision in found.decisions if decision.backend is not None)
    coverage = taken / macs if macs else 0.0
    regions = len(found.regions)
    many = ("every region's boundary costs: measure before you trust it",)
    return Option(
        name,
        "library",
        supported=regions > 0,
        command=command,
        answers=Answers(_supported(found, regions), _faster(found), _hot(found, coverage)),
        reasons=(
            *(many if regions > _FEW_REGIONS else ()),
            *_published(board, name),
            *_missing(board, name),
        ),
        coverage=coverage,
        regions=regions,
    )


def _supported(found: Partition, regions: int) -> str:
    """Describe how many operators it takes, and why it does not take the largest other one."""
    taken = sum(decision.backend is not None for decision in found.decisions)
    left: dict[str, int] = {}
    for decision in found.decisions:
        if decision.backend is None:
            words = f"{decision.operator}: {decision.reason}"
            left[words] = left.get(words, 0) + decision.macs
    why = f"; {max(left, key=lambda words: left[words])}" if left else ""
    if not regions:
        return f"no: it takes nothing of this model{why}"
    operators = counted(len(found.decisions), "operator")
    return f"yes: {taken} of {operators}, in {counted(regions, 'region')}{why}"


def _faster(found: Partition) -> str:
    """Describe the measured regions on which the decision is based."""
    measured = dict.fromkeys(
        decision.reason
        for decision in found.decisions
        if decision.region is not None and decision.reason.startswith("measured")
    )
    return "; ".join(list(measured)[:_FEW_REGIONS]) if measured else _not_measured()


def _hot(found: Partition, coverage: float) -> str:
    if not _macs_by(found.decisions):
        return "unknown: nothing in this model multiplies matrices"
    ours = _macs_by([d for d in found.decisions if d.backend is not None])
    words = f"it takes {percent(coverage)} of the multiply-accumulates"
    if coverage >= _NEARLY_ALL:
        return f"yes: {words}"
    whole = _macs_by(found.decisions)
    hottest = max(whole, key=lambda name: whole[name])
    inside = ours.get(hottest, 0) / whole[hottest]
    return f"{'in part' if ours else 'no'}: {words}, and {percent(inside)} of those in {hottest}"


def _published(board: Board, name: str) -> tuple[str, ...]:
    """Return what the backend knows of such boards from others."""
    backend = load_backend(name)
    advice = backend.advice(board) if isinstance(backend, HasAdvice) else ""
    return (advice,) if advice else ()


def _missing(board: Board, name: str) -> tuple[str, ...]:
    """Return what this host lacks to build with a backend."""
    from edgekit.profiles.board import toolchain_of

    try:
        load_backend(name).identity(board, toolchain_of(board))
    except MissingToolError as error:
        return (error.message,)
    return ()


def _int8(source: ModelSource, board: Board) -> Option:
    reasons = ["a quarter of the memory; accuracy has to be measured on your own samples"]
    if reason := product_of(board).int8_reason:
        reasons.insert(0, reason)
    if source.format != "onnx":
        answers = _refused("not here: quantise it where it is converted")
        return Option("int8", "int8", False, "", answers, tuple(reasons))
    answers = Answers("yes: edgekit quantize makes it", _not_measured(), _ALL)
    command = f"edgekit quantize {in_shell(source)} --calibrate SAMPLES"
    return Option("int8", "int8", True, command, answers, tuple(reasons))


def _refused(why: str) -> Answers:
    return Answers(why, "not asked", "not asked")


def in_shell(source: ModelSource) -> str:
    return shlex.quote(str(source.path))


def is_quantised(summary: ModelSummary) -> bool:
    kinds = {operator.name for operator in summary.operators}
    return (
        bool(kinds & {"QuantizeLinear", "QLinearConv"})
        or any(spec.quantization is not None for spec in (*summary.inputs, *summary.outputs))
        or (summary.format == "tflite" and bool(kinds & {"QUANTIZE", "DEQUANTIZE"}))
    )
