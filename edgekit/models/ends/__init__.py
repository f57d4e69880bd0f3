"""What stands before and behind a model as a part of the program on the board.

`Ends` holds the sections [preprocess] and [postprocess] of a project file. `models/onnx/ends/`
writes their operators as graphs of ONNX and puts these around an imported model of any format;
`oracle.py` puts them around its oracle. `reading.py` turns the outputs of such a program into
names, boxes, a mask or text on the host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from edgekit.base.errors import ProjectError
from edgekit.models.ends.postprocess import Postprocess
from edgekit.models.preprocess import Preprocess


@dataclass(frozen=True)
class Ends:
    """What stands before and behind a model."""

    preprocess: Mapping[str, Preprocess] = field(default_factory=dict)
    """The conversion of images to inputs, by input name."""
    postprocess: Postprocess | None = None

    def __bool__(self) -> bool:
        """Tell whether the program holds any of it."""
        return bool(self.pictures) or self.postprocess is not None

    @property
    def pictures(self) -> dict[str, Preprocess]:
        """The preprocessing that is a part of the program, by input name."""
        return {name: one for name, one in self.preprocess.items() if one.on == "board"}

    @property
    def in_program(self) -> Ends:
        """The part that decides the program."""
        return Ends(self.pictures, self.postprocess)

    def settled(self) -> Ends:
        """Let the board compute what nothing was said about."""
        settled = {
            name: replace(one, on=one.on or "board") for name, one in self.preprocess.items()
        }
        return replace(self, preprocess=settled)

    def identity(self) -> str:
        """Return a text that two ends share exactly if they are equal."""
        return json.dumps(asdict(self), sort_keys=True)


NO_ENDS = Ends()


def check_names(preprocess: Mapping[str, object], names: Sequence[str]) -> None:
    """Raise ProjectError for a preprocessing of what is no input."""
    for name in preprocess:
        if name not in names:
            raise ProjectError(
                f"a preprocessing is declared for {name!r}, which is no input of the model",
                hint=f"its inputs are {', '.join(names)}",
            )
