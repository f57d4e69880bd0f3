"""The interface of all tasks of an evaluation: items with labels, and outputs that are judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgekit.base.errors import InputError
from edgekit.base.files import storage_errors
from edgekit.base.json_text import json_line
from edgekit.verbs.evaluation.report import Figure
from edgekit.verbs.evaluation.sound import SUFFIX, read_wav

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.tensors import TensorSpec
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import InputEntry
    from edgekit.bundle.samples import Sample


@dataclass(frozen=True)
class Item:
    """A sample of a data set that was not read yet."""

    name: str
    """Its name in the data set, which no other item has."""
    path: Path
    label: Any
    """What must come out, as JSON can hold it."""
    further: Path | None = None
    """Another file that says what must come out, such as a mask."""

    def identity(self) -> str:
        """Return text that changes with the file or its label."""
        with storage_errors("read the data", self.path):
            found = [file.stat() for file in (self.path, self.further) if file is not None]
        stamps = [(file.st_size, file.st_mtime_ns) for file in found]
        return json_line([self.name, self.label, stamps])


Outputs = Mapping[str, "Array"]
"""Outputs by name, as real numbers."""


class Task(Protocol):
    """A task with a data set. What `judge` returns is kept as JSON until all items are judged."""

    @property
    def items(self) -> Sequence[Item]: ...

    @property
    def figures(self) -> Mapping[str, Figure]:
        """The figures by name, the most important first."""

    @property
    def likeness(self) -> tuple[str, Figure]:
        """The figure that says how like the model's outputs the device's are."""

    def samples(self, items: Sequence[Item]) -> Iterator[Sample]:
        """Read the samples of items, one at a time and in order."""

    def judge(self, item: Item, outputs: Outputs) -> Any:
        """Return what `summarise` needs of one item."""

    def compare(self, outputs: Outputs, expected: Outputs) -> float:
        """Return how like the `expected` outputs of the model those of the device are."""

    def summarise(self, judged: Sequence[Any]) -> Mapping[str, float]:
        """Return each of the figures."""


def file_samples(items: Sequence[Item], inputs: Sequence[InputEntry]) -> Iterator[Sample]:
    """Read the file of each item as one sample."""
    from edgekit.bundle.samples import InputFile, Sample, iterate_samples

    for item in items:
        if item.path.suffix.lower() == SUFFIX:
            spec, *others = [entry.spec for entry in inputs if entry.spec.state is None]
            if others:
                raise InputError(
                    f"{item.path} is one input, and the model takes {1 + len(others)}",
                    hint="write a .npz for each sample, with an array for each input",
                )
            yield Sample(item.name, {spec.name: read_wav(item.path, spec)})
        else:
            yield from iterate_samples([InputFile(None, item.path)], inputs)


def own_outputs(bundle: Bundle) -> list[TensorSpec]:
    """Return the outputs that are no state for the next call."""
    states = {entry.spec.state for entry in bundle.manifest.inputs}
    specs = [entry.spec for entry in bundle.manifest.outputs]
    return [spec for spec in specs if spec.name not in states]


def output_of(outputs: Outputs, name: str) -> Array:
    """Return an output; InputError if the model beside the device lacks it."""
    if name not in outputs:
        raise InputError(
            f"the model that runs beside the device has no output {name!r}",
            hint="name a model whose outputs have the names of the bundle's",
        )
    return outputs[name]


def class_folders(data: Path, suffixes: Sequence[str]) -> list[tuple[str, list[Path]]]:
    """Return the folders of a data set with a folder for each class, and the samples in each."""
    if not data.is_dir():
        raise InputError(f"there is no folder {data}", hint="name the folder of the data set")
    with storage_errors("read the data", data):
        folders = sorted(one for one in data.iterdir() if one.is_dir() and one.name[0] != ".")
        found = [(folder.name, files_in(folder, suffixes)) for folder in folders]
    if not any(files for _, files in found):
        raise InputError(
            f"{data} holds no folders with samples",
            hint=f"give each class a folder; edgekit reads {', '.join(suffixes)} in it",
        )
    return found


def files_in(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the files of a folder with these suffixes, in the order of their names."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}", hint="docs/evaluate.md has the layouts")
    with storage_errors("read the data", folder):
        found = [file for file in folder.iterdir() if file.suffix.lower() in suffixes]
        return sorted(file for file in found if file.is_file())
