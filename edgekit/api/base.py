"""What all methods of a workspace share: the folder, its events, and the device of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edgekit.api.choice import (
    DeployKeywords,
    DeviceLike,
    device_for_board,
    handle_of,
    with_board_of,
)
from edgekit.api.device import DeviceHandle, Setting
from edgekit.api.keywords import (
    BindingKeywords,
    BuildKeywords,
    FleetKeywords,
    PathLike,
    PlanKeywords,
    Unpack,
    build_options,
    without,
)
from edgekit.base.cancel import Cancellation
from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Event, Events
from edgekit.base.options import option
from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS
from edgekit.project.workspace import WorkspaceData, open_workspace

if TYPE_CHECKING:
    from edgekit.building.request import BuildRequest
    from edgekit.devices.device import Device
    from edgekit.models.model import ModelSource
    from edgekit.profiles.board import Board
    from edgekit.verbs.deploy import DeployPlan

W = TypeVar("W", bound="WorkspaceBase")


class WorkspaceBase:
    """A folder, and who hears of the work in it."""

    def __init__(
        self,
        folder: PathLike = ".",
        *,
        store: str | None = None,
        events: Events | Callable[[Event], None] | None = None,
        cancel: Cancellation | None = None,
    ) -> None:
        heard = events if isinstance(events, Events) else Events(events) if events else SILENT
        if cancel is not None:
            heard = cancel.listening(heard)
        self._setting = Setting(open_workspace(folder, store), heard, cancel)

    def __repr__(self) -> str:
        return f"Workspace({str(self.folder)!r})"

    @property
    def folder(self) -> Path:
        """The absolute folder."""
        return self.data.folder

    @property
    def data(self) -> WorkspaceData:
        """What was read of the folder: the project, the address of the store."""
        return self._setting.data

    def hearing(self: W, events: Events) -> W:
        """Return a workspace of the same folder whose events go somewhere else."""
        return self._with(replace(self._setting, events=events))

    def at_store(self: W, url: str | None) -> W:
        """Return a workspace of the same folder with another store; None keeps this one."""
        if url is None:
            return self
        return self._with(replace(self._setting, data=replace(self.data, store_url=url)))

    def on_cluster(self: W, place: str | None) -> W:
        """Return a workspace of the same folder that compiles on a cluster; None keeps this one.

        A place is `tls://HOST:PORT`, `ssh:FILE` with a host in each line, or `local:N`.
        """
        return self if place is None else self._with(replace(self._setting, cluster=place))

    def _with(self: W, setting: Setting) -> W:
        other = type(self).__new__(type(self))
        other._setting = setting
        return other

    @property
    def setting(self) -> Setting:
        """The data with the events and the cancellation of this workspace."""
        return self._setting

    def request(
        self, model: PathLike | None = None, *, twin: bool = False, **how: Unpack[BuildKeywords]
    ) -> BuildRequest:
        """Return everything that decides a build, for `edgekit.build_bundle`."""
        from edgekit.building.choose import make_request

        options = build_options(self._optional(model), how)
        return make_request(self.data, options, self._setting.events, twin=twin)

    def _optional(self, path: PathLike | None) -> Path | None:
        return None if path is None else self.data.path(path)

    def _source(
        self,
        model: PathLike | None,
        binding: Mapping[str, Any],
        *,
        only_to_show: bool = False,
    ) -> ModelSource:
        if unknown := without(binding, BindingKeywords):
            raise TypeError(f"unknown keyword arguments: {', '.join(unknown)}")
        given = build_options(None, {name: value for name, value in binding.items() if value})
        return self.data.model(
            self._optional(model),
            given.shapes,
            given.constants,
            given.adaptation,
            only_to_show=only_to_show,
        )

    def _destination(self, request: BuildRequest, out: PathLike | None) -> Path:
        from edgekit.building.build import default_destination

        if out is not None:
            return self.data.path(out)
        return default_destination(request, self.data.start)

    def _target(
        self, model: PathLike | None, how: Mapping[str, Any]
    ) -> tuple[BuildRequest, Callable[[], Device]]:
        """Return the request, and a function that reaches the device for it."""
        given = without(how, PlanKeywords)
        device = given.pop("device", None)
        twin, timeout = given.pop("twin", False), given.pop("timeout", DEFAULT_TIMEOUT_SECONDS)
        given = with_board_of(self._setting, given, device, twin)
        request = self.request(model, twin=twin, **given)

        def reach() -> Device:
            return device_for_board(
                self._setting, request.board, device, twin=twin, timeout=timeout
            )

        return request, reach

    def _tuned(
        self, request: BuildRequest, device: Device, seconds: float, again: bool
    ) -> BuildRequest:
        from edgekit.tuning.tune import quick_tune

        return quick_tune(request, device, seconds, self._setting.events, again=again)[0]

    def _deploy_plan(self, how: FleetKeywords | DeployKeywords) -> DeployPlan:
        from edgekit.models.comparison import Widening
        from edgekit.project.file import choose_keep
        from edgekit.verbs.deploy import SHORT_BENCH, DeployPlan

        return DeployPlan(
            verify=how.get("verify", True),
            widening=Widening(**(how.get("tolerance") or {})),
            bench=SHORT_BENCH if how.get("bench", True) else None,
            keep=choose_keep(self.data.project, how.get("keep")),
        )

    def reached(
        self,
        board: str | Board | None = None,
        device: DeviceLike | None = None,
        twin: bool = False,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> Device:
        """Return the device itself that a name or a board implies; a twin is started."""
        if isinstance(device, DeviceHandle):
            return device.device
        if device is not None and not isinstance(device, str):
            return device
        chosen = None if board is None else self.data.board(board)
        return handle_of(self._setting, device, chosen, twin=twin, timeout=timeout).device


def name_of(device: DeviceLike | None) -> str | None:
    return device if device is None or isinstance(device, str) else device.name


def check_can_be_tuned(board: Board) -> None:
    """Refuse a quick search where it finds nothing, before a device is chosen."""
    from edgekit.building.products import product_of

    product = product_of(board)
    if product.tuner != "kernels":
        raise UsageError(
            f"{option('quick-tune')} measures kernels of Linux boards, and {board.name} gets "
            f"{product.in_words}",
            hint="leave it out: each layer gets the cheapest kernel anyway",
        )
