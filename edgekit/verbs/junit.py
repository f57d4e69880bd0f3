"""Says reports as cases of JUnit: each reference vector, figure of accuracy, cell of a matrix."""

from __future__ import annotations

from edgekit.base.junit import Case, Outcome
from edgekit.verbs.evaluation.report import EvaluationReport
from edgekit.verbs.matrix_report import HEADS, Cell, Matrix, Status, row_of
from edgekit.verbs.verify import VerifyReport, difference_in_words

_OUTCOMES: dict[Status, Outcome] = {
    "done": "passed",
    "failed": "failed",
    "not possible": "left out",
}


def cases_of_verification(report: VerifyReport) -> tuple[Case, ...]:
    """Return a case for each sample that was compared, and each vector that was left out."""
    group = (report.bundle.name, report.device)
    cases = []
    for sample in report.samples:
        tensors = sample.tensors or report.outputs
        wrong = [tensor for tensor in tensors if not tensor.passed]
        named = report.named(sample.name)
        if wrong:
            names = ", ".join(repr(tensor.name) for tensor in wrong)
            message = f"{names}: not what {report.oracle} computes"
            lines = tuple(difference_in_words(tensor, named) for tensor in wrong)
            cases.append(Case(group, sample.name, "failed", message, lines, "VerificationError"))
        else:
            lines = tuple(
                f"{tensor.name}: max error {tensor.error_in_words()}, allowed {tensor.tolerance}"
                for tensor in tensors
            )
            cases.append(Case(group, sample.name, lines=lines))
    left_out = (Case(group, left.name, "left out", left.reason) for left in report.left_out)
    return (*cases, *left_out)


def cases_of_evaluation(report: EvaluationReport) -> tuple[Case, ...]:
    """Return a case for each figure. One without a limit can't fail."""
    group = (report.bundle.name, report.device)
    missed = {limit.metric: limit for limit in report.missed}
    cases = []
    for metric in report.metrics:
        line = f"{metric.figure.title}: {metric.figure.in_words(metric.value)}"
        if metric.name in missed:
            bound = missed[metric.name]
            allowed = f"allowed is at {bound.side} {metric.figure.in_words(bound.bound)}"
            message = f"{line}, {allowed}"
            cases.append(Case(group, metric.name, "failed", message, kind="AccuracyError"))
        else:
            cases.append(Case(group, metric.name, lines=(line,)))
    return tuple(cases)


def cases_of_matrix(matrix: Matrix) -> tuple[Case, ...]:
    """Return a case for each cell."""
    return tuple(_case_of_cell(matrix.model, cell) for cell in matrix.cells)


def _case_of_cell(model: str, cell: Cell) -> Case:
    group = (model, cell.board)
    if cell.status == "done":
        named = zip(HEADS[2:], row_of(cell)[2:], strict=True)
        lines = tuple(f"{name}: {text}" for name, text in named if text)
        return Case(group, cell.offload, lines=lines)
    return Case(group, cell.offload, _OUTCOMES[cell.status], cell.error or cell.status)
