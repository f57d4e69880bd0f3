"""Makes a build request from a caller's options and the project file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.plan import OffloadPlan, plan_offload
from edgekit.backends.registry import kernel_backend_names, load_kernel_backend
from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Events
from edgekit.building.build import check_toolchain
from edgekit.building.request import BuildRequest
from edgekit.building.tuned_kernels import measured_choices
from edgekit.building.tuned_steps import measured_ways
from edgekit.compiler.schedules.choices import NO_CHOICES
from edgekit.profiles.board import Board
from edgekit.profiles.offload import AUTO
from edgekit.profiles.toolchain import Toolchain
from edgekit.project.file import Project, choose_offload, choose_preprocess
from edgekit.project.workspace import WorkspaceData

if TYPE_CHECKING:
    from edgekit.aot.packages.formats import CodeFormat
    from edgekit.base.arrays import Array


@dataclass(frozen=True)
class BuildOptions:
    """A caller's options of a build. None leaves a choice to the project file or the board."""

    model: Path | None = None
    board: str | Board | None = None
    toolchain: str | Toolchain | None = None
    offload: tuple[str, ...] | None = None
    """The backends to prefer, in order; empty offloads nothing."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
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
    source = workspace.model(options.model, options.shapes, options.constants)
    board = workspace.board(options.board)
    toolchain = workspace.toolchain(options.toolchain or board.toolchain)
    if options.toolchain is not None:
        check_toolchain(board, toolchain)
        # The agent on the board must come from the same compiler as the model.
        board = replace(board, toolchain=toolchain.name)
    wishes = choose_offload(project, source)
    plan = (
        _plan_for_c(board, offload if offload is not None else wishes.backends, project)
        if board.kind == "baremetal"
        else plan_offload(board, wishes, offload, twin=twin, store=store)
    )
    is_c = board.kind == "baremetal"
    return BuildRequest(
        source=source,
        board=board,
        toolchain=toolchain,
        offload=replace(plan, one_layer_each=options.one_layer_each),
        preprocess=choose_preprocess(project, source),
        seed=options.seed,
        verified=options.verified or is_c,  # C carries a test, which needs expected outputs
        prefix=options.prefix,
        code_format=options.code_format,
        choices=NO_CHOICES if is_c else measured_choices(board.target, store, events, twin=twin),
        ways=measured_ways(board, toolchain, store, events) if is_c else {},
        store=store,
    )


def _plan_for_c(
    board: Board, asked: tuple[str, ...] | None, project: Project | None
) -> OffloadPlan:
    """Plan the libraries whose kernels a model in C may use.

    Without a request, the board's default libraries are used.
    """
    paths = project.library_paths if project is not None else {}
    options = {name: {"path": str(path)} for name, path in paths.items()}
    usable = kernel_backend_names()
    if asked is None or asked == AUTO:
        names = tuple(name for name in board.offload.default if name in usable)
        return OffloadPlan(names, options)
    for name in asked:
        if name not in board.offload.allowed or name not in usable:
            known = ", ".join(n for n in board.offload.allowed if n in usable)
            raise UsageError(
                f"models in C for {board.name} can't use kernels of {name}",
                hint=f"there is {known}" if known else "leave --offload out: edgekit has its own",
            )
        load_kernel_backend(name).require(options.get(name, {}))
    return OffloadPlan(asked, options)
