"""Regression: numbers for each sample, in a CSV or a .npy, and outputs that should be near them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.base.arrays import NPY_ERRORS, Array, unreadable
from edgekit.base.errors import InputError
from edgekit.base.npy import read_npy, read_npy_header
from edgekit.base.wording import counted
from edgekit.verbs.evaluation.report import Figure
from edgekit.verbs.evaluation.task import Item, Outputs, file_samples, output_of, own_outputs

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import InputEntry
    from edgekit.bundle.samples import Sample

TABLE = "labels.csv"
_ARRAYS = ("inputs.npy", "labels.npy")
_LARGEST_TABLE = 256 << 20


@dataclass(frozen=True)
class Regression:
    """A data set for a model that returns numbers."""

    items: tuple[Item, ...]
    inputs: tuple[InputEntry, ...]
    outputs: tuple[str, ...]
    rows: bool
    """Whether an item is a row of an array, and not a file."""

    @property
    def figures(self) -> Mapping[str, Figure]:
        return {
            "mae": Figure("mean absolute error", share=False, better="lower"),
            "rmse": Figure("root of the mean squared error", share=False, better="lower"),
            "r2": Figure("R2, the share of the variance", share=False),
        }

    @property
    def likeness(self) -> tuple[str, Figure]:
        title = "mean absolute difference from the model"
        return "difference", Figure(title, share=False, better="lower")

    def samples(self, items: Sequence[Item]) -> Iterator[Sample]:
        return self._rows(items) if self.rows else file_samples(items, self.inputs)

    def judge(self, item: Item, outputs: Outputs) -> list[list[float]]:
        """Return the right numbers, and those of the outputs."""
        found = self._numbers(outputs)
        if found.size != len(item.label):
            raise InputError(
                f"{item.name} has {counted(len(item.label), 'label')}, and the model returns "
                f"{counted(found.size, 'number')}",
                hint="give each sample a label for every number that the model returns",
            )
        return [item.label, found.tolist()]

    def compare(self, outputs: Outputs, expected: Outputs) -> float:
        return float(np.abs(self._numbers(outputs) - self._numbers(expected)).mean())

    def summarise(self, judged: Sequence[Sequence[Sequence[float]]]) -> Mapping[str, float]:
        labels, found = np.array(judged, np.float64).transpose(1, 0, 2)
        squares = (labels - found) ** 2
        spread = ((labels - labels.mean(axis=0)) ** 2).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            explained = 1 - squares.sum(axis=0) / spread
        return {
            "mae": float(np.abs(labels - found).mean()),
            "rmse": math.sqrt(squares.mean()),
            "r2": float(explained.mean()),
        }

    def _numbers(self, outputs: Outputs) -> Array:
        parts = [output_of(outputs, name).reshape(-1) for name in self.outputs]
        return np.concatenate(parts).astype(np.float64)

    def _rows(self, items: Sequence[Item]) -> Iterator[Sample]:
        from edgekit.bundle.samples import Sample

        if not items:
            return
        (entry,) = self.inputs
        path = items[0].path
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except NPY_ERRORS as error:
            raise unreadable(path, error) from error
        for item in items:
            row = np.array(array[int(item.name)])
            if not np.isfinite(row).all():
                raise InputError(
                    f"row {item.name} of {path} holds NaN or infinity", hint="correct the data"
                )
            if entry.spec.admits((1, *row.shape)):
                row = row[None]
            yield Sample(item.name, {entry.spec.name: np.asarray(row, order="C")})


def regression(bundle: Bundle, data: Path) -> Regression:
    """Read the labels of a data set; InputError if they do not fit the bundle."""
    inputs = bundle.manifest.inputs
    outputs = tuple(spec.name for spec in own_outputs(bundle))
    if (data / TABLE).is_file():
        return Regression(read_table(data), inputs, outputs, rows=False)
    if all((data / name).is_file() for name in _ARRAYS):
        return Regression(_read_arrays(data, inputs), inputs, outputs, rows=True)
    raise InputError(
        f"{data} has neither {TABLE} nor {' and '.join(_ARRAYS)}",
        hint=f"write {TABLE}: a line with titles, then a file and its numbers in each line",
    )


def read_table(data: Path) -> tuple[Item, ...]:
    """Read lines of a file and its numbers. Files outside the folder are refused."""
    path, items = data / TABLE, []
    try:
        if path.stat().st_size > _LARGEST_TABLE:
            raise InputError(f"{path} is too large for labels", hint="evaluate a part of the data")
        with path.open(encoding="utf-8", newline="") as stream:
            lines = csv.reader(stream)
            next(lines, None)
            for line in lines:
                if line:
                    items.append(_item(data, line, f"{path}:{lines.line_num}"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} can't be read: {error}", hint="store it as CSV") from error
    if not items:
        raise InputError(f"{path} holds no labels", hint="below the titles, write a line a sample")
    return tuple(items)


def _item(data: Path, line: Sequence[str], where: str) -> Item:
    name, *words = line
    file = data / name
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if not numbers or not np.isfinite(numbers).all():
        raise InputError(
            f"{where} is no file with its numbers", hint="write FILE,NUMBER with finite numbers"
        )
    if not file.resolve().is_relative_to(data.resolve()) or not file.is_file():
        raise InputError(
            f"{where} names {name}, which is no file in {data}",
            hint="name files relative to the folder of the data set",
        )
    return Item(name, file, numbers)


def _read_arrays(data: Path, inputs: Sequence[InputEntry]) -> tuple[Item, ...]:
    """Read the labels, and check the inputs, which are read later row by row."""
    rows, labels = (data / name for name in _ARRAYS)
    try:
        with rows.open("rb") as stream:
            header = read_npy_header(stream)
        with labels.open("rb") as stream:
            values = read_npy(stream)
    except NPY_ERRORS as error:
        raise unreadable(data, error) from error
    if len(inputs) != 1:
        raise InputError(
            f"{rows} holds one input, and the model takes {len(inputs)}",
            hint=f"write {TABLE} and a .npz for each sample",
        )
    spec, shape = inputs[0].spec, header.shape
    right = bool(shape) and (spec.admits(shape[1:]) or spec.admits((1, *shape[1:])))
    if not right or header.dtype != np.dtype(spec.dtype):
        raise InputError(
            f"{rows} holds {header.dtype}{list(shape)}, and each row must be {spec}",
            hint="store the samples in the type and the shape that the model takes",
        )
    if values.dtype.kind not in "fiu" or values.shape[:1] != shape[:1] or not len(values):
        raise InputError(
            f"{labels} holds {values.dtype}{list(values.shape)} for {counted(shape[0], 'sample')}",
            hint="store a row of numbers for each sample",
        )
    numbers = values.reshape(len(values), -1).astype(np.float64)
    if not np.isfinite(numbers).all():
        raise InputError(f"{labels} holds NaN or infinity", hint="leave those samples out")
    return tuple(Item(str(i), rows, row) for i, row in enumerate(numbers.tolist()))
