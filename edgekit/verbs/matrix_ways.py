"""The columns of a matrix: an offload, the kernels that a search finds, the model in int8."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgekit.base.errors import EdgekitError, OffloadRefusedError
from edgekit.base.events import Events
from edgekit.base.files import storage_errors
from edgekit.building.choose import BuildOptions, make_request
from edgekit.building.compilation import Compiling
from edgekit.building.products import product_of
from edgekit.building.request import BuildRequest
from edgekit.compiler.schedules.choices import NO_CHOICES
from edgekit.models.model import ModelSource
from edgekit.profiles.board import Board
from edgekit.project.workspace import WorkspaceData
from edgekit.verbs.matrix_plan import MatrixPlan

TUNED, INT8 = "tuned", "int8"
_NOISE = 16
"""The samples of noise that a model is calibrated with when there are no others."""


@dataclass(frozen=True)
class Way:
    """How a column builds the model."""

    offload: tuple[str, ...] | None
    """The backends to prefer; None leaves them to the project."""
    is_tuned: bool = False
    is_int8: bool = False


def parse_way(text: str) -> Way:
    """Parse auto, none, or names joined by +; `tuned` and `int8` may be among them."""
    words = text.split("+")
    backends = tuple(word for word in words if word not in (TUNED, INT8, "none"))
    offload = None if backends == ("auto",) else backends
    return Way(offload, TUNED in words, INT8 in words)


@dataclass(frozen=True)
class _Quantised:
    """The model in int8, made once for each kind: with symmetric activations, and without."""

    made: dict[bool, Path | EdgekitError] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Cells:
    """What all cells of a matrix share."""

    workspace: WorkspaceData
    source: ModelSource
    plan: MatrixPlan
    compiling: Compiling | None
    events: Events
    _int8: _Quantised = field(default_factory=_Quantised)

    def request(self, board: Board, text: str, twin: bool) -> BuildRequest:
        """Return what is built; where one column is tuned, the others have the rules' kernels."""
        way, source = parse_way(text), self.source
        if way.is_tuned:
            _check_can_be_tuned(board)
        options = BuildOptions(
            self._in_int8(board) if way.is_int8 else source.path,
            board,
            offload=way.offload,
            shapes={**source.shapes, **source.ranges},
            constants=source.constants,
        )
        request = make_request(self.workspace, options, twin=twin)
        if way.is_tuned or not any(parse_way(one).is_tuned for one in self.plan.offloads):
            return request
        return replace(request, choices=NO_CHOICES, ways={})

    def bundle_path(self, board: str, text: str) -> Path:
        return self.plan.out / "bundles" / f"{board}-{text}"

    def _in_int8(self, board: Board) -> Path:
        from edgekit.verbs.quantize import wants_symmetric

        symmetric = wants_symmetric(board)
        with self._int8.lock:
            if symmetric not in self._int8.made:
                try:
                    self._int8.made[symmetric] = self._quantised(symmetric)
                except EdgekitError as error:
                    self._int8.made[symmetric] = error
            made = self._int8.made[symmetric]
        if isinstance(made, EdgekitError):
            raise made
        return made

    def _quantised(self, symmetric: bool) -> Path:
        from edgekit.verbs.quantize import QuantizeRequest, check_quantiser, quantize

        check_quantiser(self.source)
        from edgekit.verbs.quantization.quantiser import Settings

        folder = self.plan.out / "models"
        with storage_errors("keep the model in int8", folder):
            folder.mkdir(parents=True, exist_ok=True)
        out = folder / f"{self.source.name}-int8{'-symmetric' if symmetric else ''}.onnx"
        noise = 0 if self.plan.calibration else _NOISE
        settings = Settings(symmetric=symmetric)
        request = QuantizeRequest(self.source, out, settings, self.plan.calibration, noise)
        return quantize(request, self.events).out


def _check_can_be_tuned(board: Board) -> None:
    has_kernels = product_of(board).tuner == "kernels" and board.target.gpu is None
    if board.in_engine or not has_kernels:
        raise OffloadRefusedError(
            f"{board.name} has no kernels that a quick search tunes",
            hint=f"leave {TUNED} out; `edgekit tune` says what it searches for",
        )
