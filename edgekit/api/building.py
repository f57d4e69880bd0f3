"""The methods of a workspace that build: no device is used unless one is measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.api.base import WorkspaceBase, check_can_be_tuned
from edgekit.api.choice import TargetKeywords
from edgekit.api.inputs import input_files
from edgekit.api.keywords import PathLike, Unpack
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
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        constants: Mapping[str, Any] | None = None,
    ) -> ModelSummary:
        """Say what is in a model, and whether it can be built."""
        from edgekit.advice.summary import summarise

        with self._setting.working():
            source = self._source(model, shapes, constants, only_to_show=True)
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
        archive: bool = False,
        dump_ir: PathLike | None = None,
        use_cache: bool = True,
        memory_map: bool = False,
        tune: float | None = None,
        tune_again: bool = False,
        **how: Unpack[TargetKeywords],
    ) -> BuildResult:
        """Build as `build` does, and return what is known about the build too.

        `archive` also writes the bundle as a .zip; `dump_ir` is a folder for the module after each
        phase of the compiler; `memory_map` adds the memory map of a model in C.
        """
        from edgekit.building.build import build

        with self._setting.working():
            request, reach = self._target(model, how)
            if how.get("verify") is False and request.verified:
                raise _c_is_verified(request.board)
            if tune is not None:
                check_can_be_tuned(request.board)
                request = self._tuned(request, reach(), tune, tune_again)
            return build(
                request,
                self._destination(request, out),
                archive=archive,
                dump_ir=self._optional(dump_ir),
                use_cache=use_cache,
                with_memory_map=memory_map,
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
        random: int = 0,
        accept_noise: bool = False,
        labels: PathLike | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        symmetric: bool | None = None,
        **settings: Any,
    ) -> QuantizeReport:
        """Quantize a float ONNX model to int8 and report the accuracy cost.

        `calibrate` names samples: folders, files, .npz, as `NAME=PATH` for several inputs. `random`
        calibrates with so many samples of noise instead. `symmetric` centers activations on zero;
        by default as the libraries for `board` require. Further settings are `per_channel`,
        `method` ("minmax", "entropy", "percentile"), `ends` ("float", "int8") and `exclude`.
        """
        from edgekit.verbs.quantize import (
            QuantizeRequest,
            check_quantiser,
            quantize,
            wants_symmetric,
        )

        with self._setting.working():
            source = self._source(model, shapes, None, only_to_show=True)
            check_quantiser(source)
            if symmetric is None:
                symmetric = board is not None and wants_symmetric(self.data.board(board))
            from edgekit.verbs.quantization.quantiser import Settings

            request = QuantizeRequest(
                source,
                self._optional(out) or source.path.with_name(f"{source.name}-int8.onnx"),
                Settings(symmetric=symmetric, **settings),
                input_files(calibrate, self.data.start),
                random,
                accept_noise,
                self._optional(labels),
            )
            return quantize(request, self._setting.events)


def _c_is_verified(board: Board) -> UsageError:
    return UsageError(
        f"{option('no-verify')} is not for {board.name}: a model in C carries a test of its own, "
        "which needs expected outputs",
        hint=f"leave {option('no-verify')} out, or choose a Linux board",
    )
