"""Classes of folders and the figures of a classification, without a device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.base.errors import InputError
from edgekit.verbs.evaluation.classification import Classification, mean_f1, numbered
from edgekit.verbs.evaluation.task import Item


def item_of(label: int) -> Item:
    return Item("sample", Path("sample.npy"), label)


def test_f1_is_the_mean_of_the_classes() -> None:
    """Class 0 has F1 of 2/3, class 1 of 1/2, and class 2, which is only found, of 0."""
    labels, found = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2])

    assert mean_f1(labels, found) == pytest.approx(np.mean([2 / 3, 1 / 2, 0]))


def test_a_class_that_nothing_reaches_is_not_a_number_to_be_right_about() -> None:
    task = Classification((), (), "scores", False, 1)

    assert task.judge(item_of(2), {"scores": np.array([[0.1, np.nan, 0.3]])}) == [2, 2]
    assert task.summarise([[2, 2], [1, 2]]) == {"top1": 0.5, "f1": pytest.approx(1 / 3)}


@pytest.mark.parametrize(
    ("names", "labels", "classes", "expected"),
    [
        (["0", "10", "2"], (), 11, [0, 10, 2]),
        (["cat", "dog"], (), 2, [0, 1]),
        (["cat", "dog"], ("dog", "elk", "cat"), 3, [2, 0]),
        (["cat", "dog"], (), None, [0, 1]),
    ],
)
def test_folders_become_classes(
    names: list[str], labels: tuple[str, ...], classes: int | None, expected: list[int]
) -> None:
    assert numbered(names, labels, classes) == expected


@pytest.mark.parametrize(
    ("names", "labels", "classes", "message"),
    [
        (["0", "11"], (), 11, "no class of a model with 11"),
        (["cat", "dgo"], ("cat", "dog"), 2, "no class is called 'dgo'"),
        (["crane"], ("crane", "crane"), 2, "several classes are called 'crane'"),
        (["cat", "dog"], (), 3, "2 folders, and the model 3 classes"),
    ],
)
def test_folders_that_fit_no_class_are_refused(
    names: list[str], labels: tuple[str, ...], classes: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        numbered(names, labels, classes)
