"""Keyword arguments that several methods of a workspace share."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

if TYPE_CHECKING:
    from edgekit.aot.packages.formats import CodeFormat
    from edgekit.base.shapes import Shape
    from edgekit.base.tensors import Range
    from edgekit.building.choose import BuildOptions
    from edgekit.bundle.folder import Bundle
    from edgekit.models.model import EndType
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain

if sys.version_info >= (3, 11):
    from typing import Unpack as Unpack
else:
    from typing_extensions import Unpack as Unpack

PathLike = str | Path
BundleLike = Union["Bundle", str, Path]
"""A bundle, or the path of its folder or .zip."""


class BindingKeywords(TypedDict, total=False):
    """What is fixed of a model's inputs before it is compiled."""

    shapes: Mapping[str, str | Sequence[int | str | Range]]
    """The shapes of inputs that the model leaves open. A dimension may have a range of sizes:
    `{"ids": "1x(1..512)"}`, or `{"ids": (1, Range(1, 512))}`."""
    constants: Mapping[str, Any]
    """Inputs to bind to arrays or numbers."""
    reshape: bool
    """Whether `shapes` override those that the model fixes."""
    ends: EndType | None
    """The type of ends that the model only quantises: "int8" makes integers of floats."""
    state: Mapping[str, str]
    """Outputs, each with the input that takes its value in the next call."""


class BuildKeywords(BindingKeywords, total=False):
    """What decides a build, with BindingKeywords. By default the project's or the board's own."""

    board: str | Board | None
    """The board, or the name of its profile."""
    toolchain: str | Toolchain | None
    """Another toolchain than the board's own."""
    offload: str | Sequence[str] | None
    """The backends to prefer, in order: `["ncnn"]`, `"auto"`, or `[]` for none."""
    seed: int
    """The seed of the reference inputs."""
    prefix: str | None
    """The prefix of C names, on bare-metal boards."""
    format: CodeFormat | None
    """A package around the C, on bare-metal boards."""
    verify: bool
    """False skips the oracle: the outputs stay unverified."""
    one_layer_each: bool
    """Whether every layer is a region of its own, to measure what merging gains."""


class OutcomeKeywords(TypedDict, total=False):
    """What a build writes besides the bundle, and whether it uses the cache."""

    archive: bool
    """Whether to write the bundle as a .zip too."""
    dump_ir: PathLike | None
    """The folder for the module after each phase of the compiler."""
    use_cache: bool
    """False neither reads nor writes the build cache."""
    memory_map: bool
    """Whether to add the memory map of a model in C."""


class PlanKeywords(TypedDict, total=False):
    """What a deployment does after the build."""

    bench: bool
    """False skips the benchmark."""
    keep: int | None
    """The number of versions of the model to keep on the device."""
    tolerance: ToleranceKeywords | None
    """Wider tolerances than those that the numbers' types call for."""


class FleetKeywords(BuildKeywords, PlanKeywords, total=False):
    """What decides a build (BuildKeywords), and what each device does (PlanKeywords)."""


class SearchKeywords(BuildKeywords, total=False):
    """What decides a build (BuildKeywords), and how long the search for fast kernels lasts."""

    trials: int | None
    """The candidates for the whole model, including those of earlier searches."""
    seconds: float | None
    """The duration of the search."""
    again: bool
    """Whether to measure again what was measured before."""
    search_seed: int
    """The seed of the search's random choices."""


class QuantizeKeywords(TypedDict, total=False):
    """How a model is quantized."""

    shapes: Mapping[str, Sequence[int]]
    """The shapes of inputs that the model leaves open."""
    random: int | None
    """The number of samples of noise to calibrate with, instead of files."""
    accept_noise: bool
    """Whether samples may look like noise."""
    labels: PathLike | None
    """A file with a class number per sample, to report accuracy before and after."""
    symmetric: bool | None
    """Whether activations are centered on zero; None is as the libraries for the board require."""
    per_channel: bool
    """Whether weights have a scale per output channel, or one per tensor."""
    method: Literal["minmax", "entropy", "percentile"]
    """How ranges are computed from the samples."""
    ends: Literal["float", "int8"]
    """The type of inputs and outputs."""
    exclude: Sequence[str]
    """The nodes that stay in float."""


class TuneKeywords(TypedDict):
    """Whether to search for faster kernels before a build."""

    tune: float | None
    """The seconds of the search; None searches not."""
    tune_again: bool
    """Whether to measure again what was measured before."""


class BenchKeywords(TypedDict, total=False):
    """How long to measure."""

    runs: int | None
    """The least number of runs. Default: 30, or 10 with `seconds`."""
    seconds: float | None
    """The least duration. Default: 3, or 0 with `runs`."""
    warmup: int
    """The runs before the measured ones. Default: 10."""
    threads: int | None
    """The threads of the model. Default: one per physical core."""
    profile: int
    """The number of further inferences that are timed kernel by kernel."""
    trace: str | Path | None
    """The file for a timeline of some of these, which Perfetto opens."""


class ShowKeywords(TypedDict, total=False):
    """What is shown and written of a run."""

    out: PathLike | None
    """The file or folder for the outputs."""
    draw: PathLike | None
    """The file or folder for the images with what was found in them, as [postprocess] says."""
    top: int
    """The number of highest elements that a report has of a vector. Default: 5."""
    keep_state: bool
    """Whether each sample goes on with the state that the one before left. Default: True."""


class LimitKeywords(TypedDict, total=False):
    """What an evaluation has to reach."""

    at_least: Mapping[str, float]
    """The lower limits of figures, `{"top1": 0.7}`. A report holds a miss too: look at `passed`."""
    at_most: Mapping[str, float]
    """The upper limits."""
    again: bool
    """Whether to begin anew instead of going on with what an interrupted evaluation left."""


class LoadgenKeywords(TypedDict, total=False):
    """What MLPerf's LoadGen tests, and how long."""

    modes: Sequence[Literal["performance", "accuracy"]]
    """The tests. Default: both."""
    benchmark: str
    """The name of MLPerf's benchmark, such as "resnet50", whose rules count."""
    seconds: float | None
    """The least duration of the performance test. Default: MLPerf's own, ten minutes."""
    queries: int | None
    """The least number of queries. Default: MLPerf's own."""
    out: PathLike | None
    """The folder for the logs. Default: build/MODEL-mlperf."""


class ToleranceKeywords(TypedDict, total=False):
    """Wider tolerances than those that the numbers' types call for."""

    rtol: float | None
    """The allowed relative error of each element."""
    atol: float | None
    """The allowed absolute error."""
    steps: int | None
    """The allowed error of quantised outputs, in steps."""


def build_options(model: Path | None, how: Mapping[str, Any]) -> BuildOptions:
    """Convert keyword arguments to the options of a build. TypeError for an unknown name."""
    from edgekit.building.choose import BuildOptions
    from edgekit.models.model import Adaptation

    given = dict(how)
    renamed = {"format": "code_format", "verify": "verified"}
    values = {renamed.get(name, name): given[name] for name in given}
    if "offload" in values:
        values["offload"] = backend_names_in(values["offload"])
    if "shapes" in values:
        values["shapes"] = {
            name: shape_given("shapes", name, s) for name, s in values["shapes"].items()
        }
    if "constants" in values:
        values["constants"] = _arrays(values["constants"])
    adaptation = Adaptation(
        values.pop("reshape", False),
        values.pop("ends", None) or "float",
        tuple(sorted(values.pop("state", {}).items())),
    )
    return BuildOptions(model=model, adaptation=adaptation, **values)


def without(how: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Return keyword arguments without those of one kind."""
    return {name: value for name, value in how.items() if name not in kind.__annotations__}


def backend_names_in(offload: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return names of backends; "none" and [] offload nothing."""
    if isinstance(offload, str):
        return () if offload == "none" else tuple(word.strip() for word in offload.split(","))
    return None if offload is None else tuple(offload)


def shape_given(keyword: str, name: str, given: Any) -> Shape:
    """Read a shape of a keyword argument; UsageError if it is none."""
    from edgekit.base.errors import UsageError
    from edgekit.base.shapes import ShapeError, read_shape

    try:
        return read_shape(given)
    except ShapeError as error:
        raise UsageError(
            f'{keyword}["{name}"]: {given!r} {error}',
            hint=f'give whole numbers, or {{"{name}": "1x(1..512)"}} for a dimension that varies',
        ) from error


def _arrays(constants: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    from edgekit.base.errors import UsageError
    from edgekit.models.constants import numbers

    arrays = {}
    for name, value in constants.items():
        array = value if isinstance(value, np.ndarray) else numbers(value)
        if array is None:
            raise UsageError(
                f"the constant {name!r} is neither an array nor numbers",
                hint="give a numpy array, a number, or a list of numbers",
            )
        arrays[name] = array
    return arrays
