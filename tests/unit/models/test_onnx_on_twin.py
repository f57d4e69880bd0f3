"""Which of ONNX's node cases stand for their operators on a twin, and what the docs say of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks.doc_table import END_MARK, write_table
from benchmarks.onnx_on_twin import one_an_operator
from benchmarks.onnx_verdicts import MARK, Verdict, markdown, sampled, section


def case(name: str, operator: str, *shape: int) -> SimpleNamespace:
    data = ([np.zeros(shape)], [np.zeros(shape)])
    return SimpleNamespace(name=name, operator=operator, data_sets=[data])


CASES = [
    case("relu_large", "Relu", 9),
    case("relu_small", "Relu", 2),
    case("relu_empty", "Relu", 0),
    case("relu_wrong", "Relu", 1),
    case("relu_expanded", "Relu", 1),
    case("abs_empty", "Abs", 0, 3),
    case("cast_refused", "Cast", 1),
]
RIGHT = {"relu_large", "relu_small", "relu_empty", "relu_expanded", "abs_empty"}


def test_the_smallest_right_case_with_elements_stands_for_its_operator() -> None:
    chosen = one_an_operator(CASES, lambda one: str(one.operator), RIGHT)
    assert [one.name for one in chosen] == ["abs_empty", "relu_small"]


def test_the_docs_count_every_verdict_and_name_what_is_not_right() -> None:
    text = section(
        [
            Verdict("abs", "Abs", "right"),
            Verdict("relu", "Relu", "wrong", "y: 1 | 2"),
            Verdict("topk", "TopK", "crash", "the model crashed"),
        ]
    )
    assert "each of 3 operators" in text
    assert "1 right, 0 refused,\n1 wrong, 1 failed." in text
    assert "| Relu | `relu` | wrong | y: 1 \\| 2 |" in text
    assert "| TopK | `topk` | failed | the model crashed |" in text
    assert "Abs" not in text


def test_the_page_of_all_cases_keeps_what_the_sample_gave(tmp_path: Path) -> None:
    page = tmp_path / "onnx-operators.md"
    page.write_text(markdown([Verdict("abs", "Abs", "right")], "1.0", ""))
    write_table(page, MARK, "what the sample gave")
    page.write_text(markdown([Verdict("abs", "Abs", "refused", "why")], "2.0", sampled(page)))
    text = page.read_text()
    assert f"{MARK}\nwhat the sample gave\n\n{END_MARK}" in text
    assert "| Abs | 0 | 1 |" in text
