"""Makes a build request from a caller's options and the project file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgekit.aot.packages.formats import CodeFormat
from edgekit.backends.plan import OffloadPlan
from edgekit.base.arrays import Array
from edgekit.base.events import SILENT, Events
from edgekit.base.own_backends import leftovers_backend
from edgekit.base.shapes import Shape
from edgekit.building.build import check_toolchain
from edgekit.building.product import OffloadWishes
from edgekit.building.products import product_of
from edgekit.building.request import BuildRequest
from edgekit.models.leftovers import Leftovers
from edgekit.models.model import AS_IN_THE_FILE, Adaptation
from edgekit.profiles.board import Board
from edgekit.profiles.toolchain import Toolchain
from edgekit.project.file import choose_offload
from edgekit.project.workspace import WorkspaceData


@dataclass(frozen=True)
class BuildOptions:
    """A caller's options of a build. None leaves a choice to the project file or the board."""

    model: Path | None = None
    board: str | Board | None = None
    toolchain: str | Toolchain | None = None
    offload: tuple[str, ...] | None = None
    """The backends to prefer, in order; empty offloads nothing."""
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    adaptation: Adaptation = AS_IN_THE_FILE
    one_layer_each: bool = False
    seed: int = 0
    prefix: str | None = None
    code_format: CodeFormat | None = None
    verified: bool = True


def make_request(
    workspace: WorkspaceData,
    options: BuildOptions,
    events: Events = SILENT,
    *,
    twin: bool = False,
) -> BuildRequest:
    """Make a request. Options override the project file.

    For a `twin`, measurements of twins count too.
    """
    project, store, offload = workspace.project, workspace.store, options.offload
    source = workspace.model(options.model, options.shapes, options.constants, options.adaptation)
    board = workspace.board(options.board)
    toolchain = workspace.toolchain(options.toolchain or board.toolchain)
    if options.toolchain is not None:
        check_toolchain(board, toolchain)
        # The agent on the board must come from the same compiler as the model.
        board = replace(board, toolchain=toolchain.name)
    wishes = choose_offload(project, source)
    paths = project.library_paths if project is not None else {}
    product = product_of(board)
    product.check_ranges(source, board)
    plan = product.plan(board, OffloadWishes(wishes, offload, paths, store, twin))
    request = BuildRequest(
        source=replace(source, leftovers=leftovers_of(board, plan)),
        board=board,
        toolchain=toolchain,
        offload=replace(plan, one_layer_each=options.one_layer_each),
        seed=options.seed,
        verified=options.verified or product.needs_outputs,
        prefix=options.prefix,
        code_format=options.code_format,
        store=store,
    )
    return product.with_measured(request, events, twin=twin)


def leftovers_of(board: Board, plan: OffloadPlan) -> Leftovers:
    """Return what becomes of nodes of an ONNX model that can't be compiled."""
    taken = leftovers_backend(plan.backends)
    if taken:
        return Leftovers(taken, "taken")
    advised = leftovers_backend(board.offload.allowed)
    return Leftovers(advised, "advised" if advised else "refused")
