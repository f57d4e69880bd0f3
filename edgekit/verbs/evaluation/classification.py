"""Classification and keywords: a folder for each class, and outputs with a score for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.base.errors import InputError
from edgekit.base.wording import counted, did_you_mean
from edgekit.bundle.samples import SUFFIXES
from edgekit.models.ends.postprocess import MOST_LABELS, Classes
from edgekit.verbs.evaluation.report import Figure
from edgekit.verbs.evaluation.sound import SUFFIX as SOUND
from edgekit.verbs.evaluation.task import (
    Item,
    Outputs,
    class_folders,
    file_samples,
    output_of,
    own_outputs,
)

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import InputEntry
    from edgekit.bundle.samples import Sample

LABELS = "labels.txt"
_LARGEST_LABELS = 16 << 20
_TOP = 5
_FILES = tuple(suffix for suffix in SUFFIXES if suffix != ".npz")


@dataclass(frozen=True)
class Classification:
    """A data set for a model that says which class a sample has."""

    items: tuple[Item, ...]
    inputs: tuple[InputEntry, ...]
    output: str
    """The output with the scores, or with the best classes of a program that orders them."""
    ordered: bool
    """Whether the program returns the best classes itself."""
    ranked: int
    """How many of the best classes are known of each sample."""

    @property
    def figures(self) -> Mapping[str, Figure]:
        best = {"top5": Figure("right among five")} if self.ranked == _TOP else {}
        return {"top1": Figure("right"), **best, "f1": Figure("F1, mean of the classes")}

    @property
    def likeness(self) -> tuple[str, Figure]:
        return "agreement", Figure("same class as the model")

    def samples(self, items: Sequence[Item]) -> Iterator[Sample]:
        return file_samples(items, self.inputs)

    def judge(self, item: Item, outputs: Outputs) -> list[int]:
        """Return the right class, and the best classes of the outputs."""
        return [item.label, *self._best(outputs)]

    def compare(self, outputs: Outputs, expected: Outputs) -> float:
        return float(self._best(outputs)[0] == self._best(expected)[0])

    def summarise(self, judged: Sequence[Sequence[int]]) -> Mapping[str, float]:
        labels = np.array([one[0] for one in judged])
        best = np.array([one[1 : 1 + self.ranked] for one in judged])
        right = best == labels[:, None]
        found = {"top1": right[:, 0].mean(), "top5": right.any(axis=1).mean()}
        found["f1"] = mean_f1(labels, best[:, 0])
        return {name: float(found[name]) for name in self.figures}

    def _best(self, outputs: Outputs) -> list[int]:
        values = output_of(outputs, self.output).reshape(-1)
        if not self.ordered:
            scores = np.where(np.isnan(values), -np.inf, values)
            values = np.argsort(-scores, kind="stable")
        return [int(index) for index in values[: self.ranked]]


def mean_f1(labels: np.ndarray, found: np.ndarray) -> float:
    """Return the mean F1 of the classes that a label or an output names."""
    scores = []
    for name in np.union1d(labels, found):
        both = int(((labels == name) & (found == name)).sum())
        scores.append(2 * both / int((labels == name).sum() + (found == name).sum()))
    return float(np.mean(scores))


def keyword(bundle: Bundle, data: Path) -> Classification:
    """Read which sounds or features a data set has, in a folder for each keyword."""
    return classification(bundle, data, (".npy", SOUND))


def classification(bundle: Bundle, data: Path, suffixes: Sequence[str] = _FILES) -> Classification:
    """Read which files a data set has; InputError if they do not fit the bundle."""
    inputs, section = bundle.manifest.inputs, bundle.manifest.postprocess
    if isinstance(section, Classes):
        output, ordered, ranked = "classes", True, section.top
        labels, classes = section.labels, len(section.labels) or None
    else:
        output, classes = _scores(bundle)
        ordered, ranked, labels = False, classes, ()
    folders = class_folders(data, suffixes)
    numbers = numbered([name for name, _ in folders], read_labels(data) or labels, classes)
    items = tuple(
        Item(f"{name}/{file.name}", file, number)
        for (name, files), number in zip(folders, numbers, strict=True)
        for file in files
    )
    # Among five of five classes, every sample is right.
    known = _TOP if ranked >= _TOP and (classes is None or classes > _TOP) else 1
    return Classification(items, inputs, output, ordered, known)


def numbered(names: Sequence[str], labels: Sequence[str], classes: int | None) -> list[int]:
    """Return the class that each folder is for: by its label, its number or its place."""
    if all(name.isdecimal() and name.isascii() and len(name) < 7 for name in names):
        numbers = [int(name) for name in names]
        if classes is not None and max(numbers) >= classes:
            raise InputError(
                f"the folder {max(numbers)} is for no class of a model with {classes:,}",
                hint="classes are counted from 0",
            )
        return numbers
    if labels:
        return [_place(name, labels) for name in names]
    if classes is not None and len(names) != classes:
        raise InputError(
            f"the data has {counted(len(names), 'folder')}, and the model "
            f"{counted(classes, 'class', 'classes')}",
            hint=f"name each folder by the number of its class, or write {LABELS} beside the "
            "folders: a class a line, in the model's order",
        )
    return list(range(len(names)))


def read_labels(data: Path) -> tuple[str, ...]:
    """Return the names of the classes that the data set comes with, if it does."""
    path = data / LABELS
    try:
        if path.stat().st_size > _LARGEST_LABELS:
            raise InputError(f"{path} is too large for labels", hint="write a class a line")
        labels = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} can't be read as text: {error}", hint="write a class a line, in UTF-8"
        ) from error
    if len(labels) > MOST_LABELS:
        raise InputError(f"{path} has {len(labels):,} lines", hint=f"at most {MOST_LABELS:,} fit")
    return tuple(labels)


def _place(name: str, labels: Sequence[str]) -> int:
    if labels.count(name) == 1:
        return labels.index(name)
    several = name in labels
    raise InputError(
        f"several classes are called {name!r}" if several else f"no class is called {name!r}",
        hint="name each folder by the number of its class"
        if several
        else did_you_mean(name, labels, "name the folders as the model's labels are"),
    )


def _scores(bundle: Bundle) -> tuple[str, int]:
    """Return the output with a score for each class, and the number of classes."""
    specs = own_outputs(bundle)
    vectors = [spec for spec in specs if sum(extent != 1 for extent in spec.shape) == 1]
    if len(vectors) != 1:
        listed = ", ".join(str(spec) for spec in specs)
        raise InputError(
            f"{bundle.path.name} has {counted(len(vectors), 'output')} that may hold a score for "
            f"each class: {listed}",
            hint='declare [postprocess] with task = "classes" in edgekit.toml, and build again',
        )
    return vectors[0].name, vectors[0].elements
