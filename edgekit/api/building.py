"""The methods of a workspace that build: no device is used unless one is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgekit.api.base import WorkspaceBase, check_can_be_tuned
from edgekit.api.choice import ResultKeywords, TargetKeywords
from edgekit.api.cluster import compiling_of
from edgekit.api.inputs import input_files
from edgekit.api.keywords import (
    BindingKeywords,
    OutcomeKeywords,
    PathLike,
    QuantizeKeywords,
    Unpack,
    without,
)
from edgekit.base.errors import UsageError
from edgekit.base.options import option

if TYPE_CHECKING:
    from edgekit.advice.summary import ModelSummary
    from edgekit.backends.report import PartitionReport
    from edgekit.building.partition import Partitioned
    from edgekit.building.request import BuildResult
    from edgekit.bundle.folder import Bundle
    from edgekit.profiles.board import Board
    from edgekit.verbs.quantize import QuantizeReport


class Building(WorkspaceBase):
    """The methods that look at models and build them."""

    def inspect(
        self,
        model: PathLike | None = None,
        **binding: Unpack[BindingKeywords],
    ) -> ModelSummary:
        """Say what is in a model, and whether it can be built."""
        from edgekit.advice.summary import summarise

        with self._setting.working():
            source = self._source(model, binding, only_to_show=True)
            return summarise(source, self._setting.events)

    def build(
        self,
        model: PathLike | None = None,
        out: PathLike | None = None,
        *,
        use_cache: bool = True,
        tune: float | None = None,
        **how: Unpack[TargetKeywords],
    ) -> Bundle:
        """Build a model into a bundle. `tune` searches so many seconds for faster kernels first.

        No device is used without `tune`. By default the bundle's folder is build/MODEL-BOARD.
        """
        return self.build_result(model, out, use_cache=use_cache, tune=tune, **how).bundle

    def build_result(
        self,
        model: PathLike | None = None,
        out: PathLike | None = None,
        *,
        tune: float | None = None,
        tune_again: bool = False,
        **how: Unpack[ResultKeywords],
    ) -> BuildResult:
        """Build as `build` does, and return what is known about the build too."""
        from edgekit.building.build import build

        with self._setting.working():
            request, reach = self._target(model, without(how, OutcomeKeywords))
            if how.get("verify") is False and request.verified:
                raise _c_is_verified(request.board)
            if tune is not None:
                check_can_be_tuned(request.board)
                request = self._tuned(request, reach(), tune, tune_again)
            return build(
                request,
                self._destination(request, out),
                archive=how.get("archive", False),
                dump_ir=self._optional(how.get("dump_ir")),
                use_cache=how.get("use_cache", True),
                compiling=compiling_of(self._setting, request.source.format),
                with_memory_map=how.get("memory_map", False),
                events=self._setting.events,
            )

    def partition(
        self,
        model: PathLike | None = None,
        *,
        measure: bool = False,
        again: bool = False,
        **how: Unpack[TargetKeywords],
    ) -> PartitionReport:
        """Say which backend would run each operator of a model, and why. Nothing is built.

        `measure` first times each region on a device both ways; later builds use the result.
        """
        return self.partitioned(model, measure=measure, again=again, **how).report

    def partitioned(
        self,
        model: PathLike | None = None,
        *,
        measure: bool = False,
        again: bool = False,
        **how: Unpack[TargetKeywords],
    ) -> Partitioned:
        """Partition as `partition` does, and return the regions to draw or export too."""
        from edgekit.building.partition import partition

        with self._setting.working():
            request, reach = self._target(model, how)
            if measure:
                from edgekit.tuning.regions import measure_regions

                request = measure_regions(request, reach(), self._setting.events, again=again)
            return partition(request, self._setting.events)

    def quantize(
        self,
        model: PathLike | None = None,
        calibrate: Sequence[PathLike] | PathLike = (),
        out: PathLike | None = None,
        *,
        board: str | Board | None = None,
        **how: Unpack[QuantizeKeywords],
    ) -> QuantizeReport:
        """Quantize a float ONNX model to int8 and report the accuracy cost.

        `calibrate` names samples: folders, files, .npz, as `NAME=PATH` for several inputs.
        """
        from edgekit.verbs.quantize import (
            QuantizeRequest,
            check_quantiser,
            quantize,
            wants_symmetric,
        )

        with self._setting.working():
            source = self._source(model, {"shapes": how.get("shapes")}, only_to_show=True)
            check_quantiser(source)
            from edgekit.verbs.quantization.quantiser import Settings

            given: dict[str, Any] = dict(how)
            given.pop("shapes", None)
            random, accepts = given.pop("random", None) or 0, given.pop("accept_noise", False)
            labels = self._optional(given.pop("labels", None))
            if given.get("symmetric") is None:
                of_board = board is not None and wants_symmetric(self.data.board(board))
                given["symmetric"] = of_board
            request = QuantizeRequest(
                source,
                self._optional(out) or source.path.with_name(f"{source.name}-int8.onnx"),
                Settings(**given),
                input_files(calibrate, self.data.start),
                random,
                accepts,
                labels,
            )
            return quantize(request, self._setting.events)


def _c_is_verified(board: Board) -> UsageError:
    return UsageError(
        f"{option('no-verify')} is not for {board.name}: a model in C carries a test of its own, "
        "which needs expected outputs",
        hint=f"leave {option('no-verify')} out, or choose a Linux board",
    )
