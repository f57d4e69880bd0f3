"""The ONNX node conformance cases, run on this machine as `edgekit deploy` runs a model.

    python benchmarks/onnx_nodes.py                     # all of them; writes docs/onnx-operators.md
    python benchmarks/onnx_nodes.py --filter '^test_lstm' --verbose
    python benchmarks/onnx_nodes.py --offload ncnn      # with all that ncnn takes in ncnn
    python benchmarks/onnx_nodes.py --offload acl --lab --taken    # in ACL, on an emulated CPU
    python benchmarks/onnx_nodes.py --offload acl --lab --touched  # all in which ACL has a part
    python benchmarks/onnx_nodes.py --offload tensorrt --lab --taken   # its ONNX, in onnxruntime
    python benchmarks/onnx_nodes.py --offload onnxruntime --refused    # what is refused otherwise
    python benchmarks/onnx_nodes.py --twin              # a case of each operator, by the agent
    python benchmarks/onnx_nodes.py --board local-opencl   # in kernels of OpenCL

Every case the `onnx` package ships (`onnx.backend.test`, kind "node") is imported, compiled,
linked, run in the process that a deployment uses (TVM's small runtime, without its compiler) and
compared with the outputs that come with it. The verdicts: right; refused (edgekit said why it
can't, in a typed error); wrong; crash (anything else, a dying process or a time-out included).

Inputs that only decide shapes (axes, shapes, pads, counts; edgekit/models/onnx/parameters.py
lists them) are bound as constants, which is what real models do.

With `--offload` every region that a backend takes is offloaded, whether or not that pays, and its
C++ is compiled: some seconds a case. With `--lab` the regions of the one backend run in a program
that was compiled once for all (tests/support/region_lab.py), ACL's under emulation, TensorRT's as
ONNX in onnxruntime. A region that
says it does not compute with NaN or infinity counts as refused. With `--touched` a case without a
region is not compiled: that is "untouched", for it would be compiled as it is without `--offload`.
docs/onnx-operators.md stays as it is.

With `--board local-opencl` kernels run on this machine's GPU or, by pocl, on its CPU.

With `--refused` only those cases run that are refused without a backend. Together with `--offload
onnxruntime` it writes its counts into docs/onnxruntime.md.

With `--twin` the cases are built for a Raspberry Pi 4, sent to an emulated one over SSH and run by
the agent there, each in a fork of its own. Without a filter that is the smallest right case of each
operator, and the counts go into docs/onnx-operators.md; the expected verdicts say which cases are
right.

Exit code 1 if any case is wrong or crashes, or fewer than 1750 of all of them are right.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import figures
from benchmarks.doc_table import write_table
from benchmarks.forked import run_each
from benchmarks.onnx_on_twin import build_for_board, one_an_operator, run_on_twin
from benchmarks.onnx_verdicts import (
    ATOL,
    JUDGED,
    LEFT_MARK,
    MARK,
    RTOL,
    Verdict,
    expectations,
    left_section,
    markdown,
    sampled,
    section,
)

if TYPE_CHECKING:
    from edgekit.base.errors import EdgekitError

BFLOAT16_RTOL = 2**-6  # two units in the last place, as onnx's own runner allows
ENOUGH_RIGHT = 1750
SECONDS_A_CASE = 120
FORMERLY_WRONG = (
    r"isinf|_expand_|dropout|mod_(float|mixed)|roialign|bitshift|batchnorm|nonmaxsuppression|"
    r"layer_normalization(?!.*expanded)|tile|spacetodepth|cast_no_saturate|"
    r"reduce_(max|min)_empty|fullymasked"
)
"""What stock TVM computes wrongly, or edgekit once did."""
TAKEN = (
    r"^test_(conv|convtranspose|relu|leakyrelu|gemm|matmul|maxpool|averagepool|globalaverage|softmax|"
    r"add|sub|mul|div|clip|sigmoid|tanh|elu|prelu|hardswish|concat|reshape|transpose|slice|split|pad|"
    r"squeeze|reduce_(sum|mean|max|min|prod)|resize|instancenorm|layer_norm|batchnorm)"
)
"""Operators that backends take."""
ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "onnx-operators.md"
REST = ("onnxruntime",)
LEFT_DOCS = ROOT / "docs" / "onnxruntime.md"
EXPECTATIONS = ROOT / "tests" / "integration" / "models" / "onnx_node_expectations.json"


@dataclass(frozen=True)
class Offload:
    backends: tuple[str, ...] = ()
    """The choices in the order of preference."""
    lab: bool = False
    touched: bool = False
    """Only cases in which backends take something."""
    board: str = "local"
    """The board of this machine that compiles and runs the cases."""
    bundles: Path | None = None
    """Where a bundle for the twin's board is left of each case, which is not run."""


NOTHING = Offload()
BUILT = "built"
"""The verdict of a case that is still to be run on the twin."""


def operator_of(case: Any) -> str:
    """The operator a case is about; an expanded one is about the operator it expands."""
    name = case.name.removeprefix("test_")
    nodes = case.model.graph.node
    if len(nodes) == 1:
        domain = nodes[0].domain
        return f"{domain}.{nodes[0].op_type}" if domain else nodes[0].op_type
    base = _BY_NAME.get(name.split("_expanded")[0])
    return base or "(several)"


_BY_NAME: dict[str, str] = {}


def load_cases(pattern: str) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        cases = load_model_tests(kind="node")
    for case in cases:
        nodes = case.model.graph.node
        if "_expanded" not in case.name and nodes:
            domain, kind = nodes[-1].domain, nodes[-1].op_type
            _BY_NAME[case.name.removeprefix("test_")] = f"{domain}.{kind}" if domain else kind
    return [case for case in cases if re.search(pattern, case.name)]


def judge(case: Any, offload: Offload = NOTHING) -> tuple[str, str, int]:
    """Import, compile, run and compare one case: the verdict, the reason, how many regions."""
    from edgekit.base.errors import ModelError, UnsupportedModelError

    regions: list[str] = []
    try:
        return (*_run(case, offload, regions), len(regions))
    except (ModelError, UnsupportedModelError) as error:
        return "refused", " ".join((error.message, *error.details)), 0
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the finding
        lines = str(error).strip().splitlines() or [""]
        if regions and "NaN or infinity" in str(error):
            return "refused", "its inputs hold NaN or infinity", len(regions)
        return "crash", f"{type(error).__name__}: {lines[-1][:300]}", len(regions)


def _run(case: Any, offload: Offload, regions: list[str]) -> tuple[str, str]:
    from edgekit.backends.offloading import partition_model
    from edgekit.base.events import SILENT
    from edgekit.base.own_backends import leftovers_backend
    from edgekit.base.varying import trimmed, without_lengths
    from edgekit.models.leftovers import REFUSED, Leftovers
    from edgekit.models.model import ModelSource
    from edgekit.models.onnx import load
    from edgekit.models.onnx.small_types import as_bytes

    rest = leftovers_backend(offload.backends)
    leftovers = Leftovers(rest, "taken") if rest else REFUSED
    given, expected = case.data_sets[0]
    inputs = {
        item.name: as_array(value)
        for item, value in zip(case.model.graph.input, given, strict=False)
    }
    bound = {name: inputs[name] for name in parameters(case.model, inputs)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data := case.model.SerializeToString())
        digest = hashlib.sha256(data).hexdigest()
        source = ModelSource(path, "onnx", digest, constants=bound, leftovers=leftovers)
        model = load(source, SILENT)
    if offload.touched and not partition_model(model, selected(offload)).regions:
        return "untouched", ""
    arguments = [
        np.ascontiguousarray(as_bytes(inputs[spec.name])).reshape(spec.shape)
        for spec in model.inputs
    ]
    if offload.bundles is not None:
        build_for_board(model, arguments, offload.bundles / case.name)
        return BUILT, ""
    results = compile_and_run(model, arguments, offload, regions)
    _, outputs = without_lengths(model.inputs, model.outputs)
    return compared(
        [spec.name for spec in outputs], [*trimmed(outputs, results, {}).values()], expected
    )


def compared(
    names: Sequence[str], results: Sequence[np.ndarray], expected: Sequence[Any]
) -> tuple[str, str]:
    """Right or wrong, and why."""
    for name, actual, wanted in zip(names, results, expected, strict=True):
        problem = difference(*as_numbers(actual, as_array(wanted)))
        if problem:
            return "wrong", f"{name}: {problem}"
    return "right", ""


def as_numbers(actual: Any, wanted: Any) -> tuple[Any, Any]:
    """What a case wants in a small type, which a program gives as bytes, as float32."""
    from edgekit.models.onnx.small_types import as_bytes

    if not isinstance(wanted, np.ndarray) or as_bytes(wanted) is wanted:
        return actual, wanted
    stored = as_bytes(wanted)
    if actual.dtype == stored.dtype and "float" in wanted.dtype.name:
        actual = actual.view(wanted.dtype)
    return actual.astype(np.float32), wanted.astype(np.float32)


def as_array(value: Any) -> Any:
    """Some cases hold their data as ONNX tensors; sequences and optionals stay what they are."""
    import onnx

    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return value if value is None or isinstance(value, list) else np.asarray(value)


def parameters(model: Any, inputs: dict[str, Any]) -> list[str]:
    """The inputs that decide shapes: those that are parameters as they stand, and whole numbers
    that parameters are computed from."""
    from edgekit.models.onnx.binding import true_inputs
    from edgekit.models.onnx.parameters import open_parameters

    names = [item.name for item in true_inputs(model.graph)]
    found: set[str] = set()
    for item in open_parameters(model.graph.node, names):
        if item.data:
            continue
        for name in item.inputs:
            value = inputs.get(name)
            if isinstance(value, np.ndarray) and (
                item.direct or value.size == 1 or value.dtype.kind in "iub"
            ):
                found.add(name)
    return sorted(found)


def compile_and_run(
    model: Any, arguments: Sequence[np.ndarray], offload: Offload, regions: list[str]
) -> Sequence[np.ndarray]:
    """`regions` gets the names of those that backends run."""
    from edgekit.backends.offloading import compile_model
    from edgekit.profiles.board import load_board

    board = load_board(offload.board)
    selection = selected(offload) if offload.backends else None
    compiled = compile_model(model, board.target, offload=selection, linked=True)
    regions += [region.symbol for region in compiled.regions]
    sys.path.append(str(ROOT / "tests"))
    from support.deployed import run_deployed

    outputs: Sequence[np.ndarray]
    if offload.lab:
        labs = in_lab(compiled.regions, offload.backends[0])
        outputs = run_deployed(compiled, arguments, target=board.target, labs=labs)
    else:
        backends = selection.backends if selection is not None else ()
        outputs = run_deployed(compiled, arguments, target=board.target, backends=backends)
    return outputs


def selected(offload: Offload) -> Any:
    from edgekit.backends.plan import OffloadPlan, selection_of
    from edgekit.profiles.offload import Rates

    whatever_it_costs = Rates(call_us=-1e12)
    return selection_of(OffloadPlan(offload.backends, rates=whatever_it_costs))


def in_lab(regions: Sequence[Any], backend: str) -> Sequence[Any]:
    """Let a program of the tests, which runs any region of the backend, run these."""
    from support.acl_arm import AclRegion
    from support.deployed import RegionInLab
    from support.ncnn_lab import RegionRunner
    from support.offloaded import selection_for
    from support.onednn_lab import OneDnnRegion
    from support.tensorrt_regions import OnnxRegion

    makers = {"acl": AclRegion, "ncnn": RegionRunner, "onednn": OneDnnRegion}
    make = {**makers, "tensorrt": OnnxRegion}[backend]
    given = {} if backend == "tensorrt" else {"threads": 1}
    options = selection_for(backend, **given).backends[0][1]
    return [RegionInLab(make, region, options) for region in regions]


def difference(actual: np.ndarray, expected: np.ndarray) -> str:
    """What is wrong with the numbers; nothing if they are right."""
    if actual.shape != expected.shape:
        return f"shape {list(actual.shape)} instead of {list(expected.shape)}"
    if actual.dtype != expected.dtype:
        return f"{actual.dtype} instead of {expected.dtype}"
    if expected.dtype.kind in "iub":
        close = actual == expected
    else:
        a, b = actual.astype("float64"), expected.astype("float64")
        rtol = BFLOAT16_RTOL if expected.dtype.name == "bfloat16" else RTOL
        with np.errstate(invalid="ignore"):
            close = (a == b) | (np.abs(a - b) <= ATOL + rtol * np.abs(b))
        close |= np.isnan(a) & np.isnan(b)
    if close.all():
        return ""
    index = tuple(int(i) for i in np.argwhere(~close)[0])
    return (
        f"{int((~close).sum())} of {close.size} elements; at {list(index)} "
        f"{actual[index]} instead of {expected[index]}"
    )


def run_all(
    cases: Sequence[Any],
    jobs: int,
    offload: Offload,
    on_verdict: Callable[[Verdict], None],
) -> list[Verdict]:
    """All cases over a few forked workers; one that dies or hangs costs only its own case."""
    from edgekit.base.tvm_compat import load_tvm

    load_tvm()  # once, before the workers are forked

    import edgekit.models.onnx.loading  # noqa: F401

    def timed(number: int) -> tuple[tuple[str, str, int], float]:
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        return judge(cases[number], offload), time.perf_counter() - started

    verdicts: dict[int, Verdict] = {}
    for number, outcome in run_each(timed, range(len(cases)), jobs, SECONDS_A_CASE):
        if isinstance(outcome, str):
            outcome = ("crash", outcome, 0), float(SECONDS_A_CASE)
        (word, reason, regions), seconds = outcome
        case = cases[number]
        verdicts[number] = Verdict(
            case.name, operator_of(case), word, reason, round(seconds, 3), regions
        )
        on_verdict(verdicts[number])
    return [verdicts[number] for number in range(len(cases))]


def run_on_the_twin(
    cases: Sequence[Any], jobs: int, on_verdict: Callable[[Verdict], None]
) -> list[Verdict]:
    """Build all cases for the twin's board, then let its agent run those that were built."""
    with tempfile.TemporaryDirectory() as name:
        verdicts = run_all(cases, jobs, Offload(bundles=Path(name)), on_verdict)
        built = [number for number, item in enumerate(verdicts) if item.verdict == BUILT]
        with closing(run_on_twin([Path(name) / cases[number].name for number in built])) as results:
            for number in built:
                verdicts[number] = ran_on_twin(verdicts[number], cases[number], results)
                on_verdict(verdicts[number])
    return verdicts


def ran_on_twin(
    verdict: Verdict, case: Any, results: Iterator[list[np.ndarray] | EdgekitError]
) -> Verdict:
    """The verdict once the next of the results is there."""
    started, result = time.perf_counter(), next(results)
    if isinstance(result, list):
        names = [output.name for output in case.model.graph.output]
        word, reason = compared(names, result, case.data_sets[0][1])
    else:
        word, reason = "crash", " ".join((result.message, *result.details))
    seconds = round(time.perf_counter() - started, 3)
    return replace(verdict, verdict=word, reason=reason, seconds=seconds)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--filter", default="", help="a regular expression for case names")
    parser.add_argument(
        "--sample",
        type=int,
        default=0,
        metavar="N",
        help="every Nth case",
    )
    parser.add_argument(
        "--once-wrong", action="store_true", help="beside a sample those that were wrong once"
    )
    parser.add_argument("--taken", action="store_true", help="operators that backends take")
    parser.add_argument(
        "--refused", action="store_true", help="only cases that are refused without a backend"
    )
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--offload", default="", help="backends, in the order of preference")
    parser.add_argument(
        "--lab", action="store_true", help="regions of the one backend in the tests' own program"
    )
    parser.add_argument(
        "--touched", action="store_true", help="only cases in which a backend takes something"
    )
    parser.add_argument(
        "--twin", action="store_true", help="a case of each operator on an emulated Raspberry Pi"
    )
    parser.add_argument(
        "--board", default="local", help="local, or local-opencl: the docs stay as they are"
    )
    parser.add_argument("--json", type=Path, help="write every verdict to this file")
    parser.add_argument("--no-docs", action="store_true", help=f"leave {DOCS.name} as it is")
    parser.add_argument("--expectations", type=Path, help="write the lists tests compare with")
    parser.add_argument("--verbose", action="store_true", help="print each case that is not right")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    import onnx

    print("loading the cases ...", file=sys.stderr)
    cases = load_cases(options.filter)
    if options.taken:
        cases = [case for case in cases if re.search(TAKEN, case.name)]
    if options.refused:
        refused = frozenset(json.loads(EXPECTATIONS.read_text())["refused"])
        cases = [case for case in cases if case.name in refused]
    if options.sample:
        cases = [
            case
            for number, case in enumerate(cases)
            if number % options.sample == 0
            or (options.once_wrong and re.search(FORMERLY_WRONG, case.name))
        ]
    backends = tuple(name for name in options.offload.split(",") if name)
    if options.lab and len(backends) != 1:
        print("--lab runs the regions of one backend: say which with --offload", file=sys.stderr)
        return 2
    everything = not (
        options.filter or options.sample or options.taken or options.refused or backends
    )
    whole = everything and not options.twin and options.board == "local"
    if options.twin and backends:
        print("--twin offloads nothing: leave --offload out", file=sys.stderr)
        return 2
    if options.twin and everything:
        right = frozenset(json.loads(EXPECTATIONS.read_text())["right"])
        cases = one_an_operator(cases, operator_of, right)
    started, latest, told = time.perf_counter(), dict[str, str](), 0

    def show(verdict: Verdict) -> None:
        nonlocal told
        told += 1
        latest[verdict.case] = verdict.verdict
        if options.verbose and verdict.verdict not in ("right", "untouched", BUILT):
            print(f"{verdict.verdict:8}{verdict.case}: {verdict.reason}", file=sys.stderr)
        if sys.stderr.isatty() or told % (10 if options.twin else 100) == 0:
            end = "\r" if sys.stderr.isatty() else "\n"
            counts = dict(Counter(latest.values()))
            print(f"{len(latest)}/{len(cases)} {counts}", end=end, file=sys.stderr)

    touched = options.touched and bool(backends)
    offload = Offload(backends, options.lab, touched, options.board)
    if options.twin:
        verdicts = run_on_the_twin(cases, options.jobs, show)
    else:
        verdicts = run_all(cases, options.jobs, offload, show)
    seconds = time.perf_counter() - started
    counts = Counter(latest.values())
    if options.json:
        options.json.write_text(json.dumps([asdict(item) for item in verdicts], indent=1))
    if options.expectations and whole:
        options.expectations.write_text(expectations(verdicts))
    if whole and not options.no_docs:
        DOCS.write_text(markdown(verdicts, onnx.__version__, sampled(DOCS)))
    if options.twin and everything and not options.no_docs:
        header = figures.header("python benchmarks/onnx_nodes.py --twin", JUDGED)
        write_table(DOCS, MARK, f"{header}\n{section(verdicts)}", dates=False)
    if options.refused and backends == REST and not options.no_docs and not options.filter:
        header = figures.header(
            "python benchmarks/onnx_nodes.py --offload onnxruntime --refused", JUDGED
        )
        write_table(LEFT_DOCS, LEFT_MARK, f"{header}\n{left_section(verdicts)}", dates=False)
    print(f"{len(cases)} cases in {seconds:.0f} s: {dict(counts)}")
    if backends:
        offloaded = sum(1 for item in verdicts if item.regions)
        print(f"{offloaded} of them with a region in {' or '.join(backends)}")
    bad = counts["wrong"] + counts["crash"]
    return 1 if bad or (whole and counts["right"] < ENOUGH_RIGHT) else 0


if __name__ == "__main__":
    sys.exit(main())
