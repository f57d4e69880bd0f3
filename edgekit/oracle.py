"""What a model computes according to somebody other than TVM.

Each format has the runtime its authors test with: onnxruntime, LiteRT's reference kernels, PyTorch.
They are optional packages; importing this module imports none of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgekit.arrays import Array, numpy_dtype
from edgekit.comparison import Leeway
from edgekit.errors import EdgekitError, MissingToolError, ModelError
from edgekit.interrupts import interrupts_deferred
from edgekit.model import ModelSource

if TYPE_CHECKING:
    from edgekit.frontends.onnx.leeway import Roundings


class Oracle(Protocol):
    """An independent runtime that has the model loaded."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The model's outputs by name."""

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        """Return what each of the `outputs` of `run` may be off by where the model rounds inside.

        An output that no rounding reaches has no leeway.
        """

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        """Seconds of each of `runs` runs, as fast as this runtime goes on `threads` threads.

        Timing uses the runtime's fast kernels; `run` uses those that are easiest to trust.
        """


def oracle_for(source: ModelSource) -> Oracle:
    """The oracle for a model's format; MissingToolError if its package is not installed."""
    if source.format == "onnx":
        from edgekit.onnx_oracle import OnnxOracle

        return OnnxOracle(source)
    if source.format == "tflite":
        return LiteRtOracle(source)
    return TorchOracle(source)


@dataclass(frozen=True)
class _OtherRuns:
    """A model in onnxruntime with other roundings than the oracle's."""

    roundings: Roundings
    sessions: tuple[Any, ...]
    wide: Any | None
    """In float32, what the model has in half precision."""


class OnnxRuntimeOracle:
    """onnxruntime on one thread, with every graph optimisation off."""

    name = "onnxruntime"

    def __init__(self, source: ModelSource) -> None:
        # onnxruntime reports to its maker, under an id it leaves in the user's home, unless told
        # not to before it is loaded. Proving a model is nobody else's business.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        self._ort = _package("onnxruntime", "onnx")
        self.version = installed_or_unknown("onnxruntime")
        self._source = source
        self._session = self._open(threads=1, optimised=False)
        self._others: list[_OtherRuns | None] = []
        """Empty until it is asked for."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        names = [output.name for output in self._session.get_outputs()]
        with blamed(self):
            values = self._session.run(names, self._feeds(self._session, inputs))
        return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        from edgekit.frontends.onnx.leeway import leeways, rounded_inputs

        others = self._other_runs()
        if others is None:
            return {}
        names = list(outputs)
        runs = [(session, inputs) for session in others.sessions]
        if others.wide is not None:
            runs += [(others.wide, given) for given in rounded_inputs(inputs)]
        found = []
        for session, given in runs:
            # One that onnxruntime can't run leaves less leeway, and no doubt.
            with suppress(ModelError), blamed(self):
                values = session.run(names, self._feeds(session, given))
                found.append(dict(zip(names, values, strict=True)))
        return leeways(outputs, found, others.roundings.steps)

    def _other_runs(self) -> _OtherRuns | None:
        """Return the model ready to run with other roundings; None if it rounds nothing."""
        if not self._others:
            from edgekit.frontends.onnx.leeway import roundings

            found = roundings(self._source.path)
            if found is None:
                self._others = [None]
            else:
                sessions = [self._open(threads=1, optimised=True)]
                sessions += [self._open(1, optimised=False, model=one) for one in found.variants]
                wide = None
                with suppress(ModelError):
                    wide = self._open(1, optimised=False, model=found.wide) if found.wide else None
                self._others = [_OtherRuns(found, tuple(sessions), wide)]
        return self._others[0]

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        session = self._open(threads, optimised=True)
        feeds = self._feeds(session, inputs)
        with blamed(self):
            return _seconds(lambda: session.run(None, feeds), runs)

    def _open(self, threads: int, optimised: bool, model: bytes | None = None) -> Any:
        options = self._ort.SessionOptions()
        # Its fast kernels for u8s8 saturate on CPUs without VNNI, unless told to be precise.
        options.add_session_config_entry("session.x64quantprecision", "1")
        levels = self._ort.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
        )
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        with blamed(self):
            return self._ort.InferenceSession(
                model or str(self._source.path), options, providers=["CPUExecutionProvider"]
            )

    def _feeds(self, session: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
        given = {**inputs, **self._source.constants}
        return {
            entry.name: given[entry.name] for entry in session.get_inputs() if entry.name in given
        }


class LiteRtOracle:
    """LiteRT with its reference kernels, which define what quantised operators mean."""

    name = "LiteRT"

    def __init__(self, source: ModelSource) -> None:
        from edgekit.frontends.tflite import input_names, input_shapes, output_names
        from edgekit.frontends.tflite.file import read_tflite

        self._interpreters = _package("ai_edge_litert.interpreter", "tflite")
        self.version = installed_or_unknown("ai-edge-litert")
        file = read_tflite(source.path)  # LiteRT checks less than this does, and is native code.
        self._content = file.data
        self._inputs = input_names(file)
        self._outputs = output_names(file)
        self._shapes = input_shapes(file, source)
        self._interpreter = self._open(threads=1, reference=True)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with blamed(self):
            self._set(self._interpreter, inputs)
            self._interpreter.invoke()
            values = [
                np.array(self._interpreter.get_tensor(detail["index"]))
                for detail in self._interpreter.get_output_details()
            ]
        return dict(zip(self._outputs, values, strict=True))

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        return {}

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        interpreter = self._open(threads, reference=False)
        with blamed(self):
            self._set(interpreter, inputs)
            return _seconds(interpreter.invoke, runs)

    def _open(self, threads: int, reference: bool) -> Any:
        kinds = self._interpreters.OpResolverType
        with blamed(self):
            if not reference:
                interpreter = self._interpreter_with(kinds.AUTO, threads)
            else:
                try:
                    interpreter = self._interpreter_with(kinds.BUILTIN_REF, threads)
                except ValueError:  # Some operators, such as CEIL, have no reference kernel.
                    plain = kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
                    interpreter = self._interpreter_with(plain, threads)
            for detail, shape in zip(interpreter.get_input_details(), self._shapes, strict=True):
                if tuple(detail["shape"]) != shape:
                    interpreter.resize_tensor_input(detail["index"], shape)
            interpreter.allocate_tensors()
        return interpreter

    def _interpreter_with(self, kernels: Any, threads: int) -> Any:
        return self._interpreters.Interpreter(
            model_content=self._content,
            num_threads=threads,
            experimental_op_resolver_type=kernels,
        )

    def _set(self, interpreter: Any, inputs: Mapping[str, Array]) -> None:
        for detail, name in zip(interpreter.get_input_details(), self._inputs, strict=True):
            interpreter.set_tensor(detail["index"], inputs[name])


class TorchOracle:
    """The saved program, run by PyTorch eagerly."""

    name = "PyTorch"

    def __init__(self, source: ModelSource) -> None:
        from edgekit.frontends.torch import open_program

        self._torch = _package("torch", "torch")
        self.version = installed_or_unknown("torch")
        opened = open_program(source)
        self._outline, self._program = opened.outline, opened.program
        with blamed(self):
            self._module = self._program.module()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with blamed(self), _threads(self._torch, 1), self._torch.no_grad():
            results = self._call(inputs)()
        names = [spec.name for spec in self._outline.outputs]
        return {name: self._array(value) for name, value in zip(names, results, strict=True)}

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        return {}

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        with blamed(self), _threads(self._torch, threads), self._torch.no_grad():
            return _seconds(self._call(inputs), runs)

    def _call(self, inputs: Mapping[str, Array]) -> Callable[[], Sequence[Any]]:
        from torch.utils import _pytree as pytree

        from edgekit.frontends.torch import arguments

        tensors = [self._tensor(inputs[spec.name]) for spec in self._outline.inputs]
        positional, keywords = arguments(self._program, tensors)

        def call() -> Sequence[Any]:
            leaves: Sequence[Any] = pytree.tree_leaves(self._module(*positional, **keywords))
            return leaves

        return call

    def _tensor(self, array: Array) -> Any:
        if array.dtype.name == "bfloat16":  # torch does not know numpy's extension type.
            return self._torch.from_numpy(array.view(np.int16).copy()).view(self._torch.bfloat16)
        # Not np.ascontiguousarray, which makes a scalar a vector of one.
        return self._torch.from_numpy(np.asarray(array, order="C"))

    def _array(self, tensor: Any) -> Array:
        if tensor.dtype == self._torch.bfloat16:
            halves: Array = tensor.contiguous().view(self._torch.int16).numpy()
            return halves.view(numpy_dtype("bfloat16"))
        return np.array(tensor.numpy())


def _package(module: str, extra: str) -> ModuleType:
    try:
        # Ctrl-C while a native module starts would come out of it as an ImportError.
        with interrupts_deferred():
            return import_module(module)
    except ImportError as error:
        raise MissingToolError(
            f"the reference outputs come from the Python package {module.partition('.')[0]}, "
            "which is not installed",
            hint=f"pip install 'edgekit[{extra}]'",
        ) from error


def installed_or_unknown(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "of unknown version"


@contextmanager
def blamed(oracle: Oracle) -> Iterator[None]:
    """An oracle that fails is the model's problem, and is named."""
    try:
        yield
    except EdgekitError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ModelError(
            f"{oracle.name} {oracle.version} cannot run the model: "
            f"{lines[0] if lines else type(error).__name__}",
            hint="the model is broken, or needs another version of that package",
            details=tuple(lines[1:9]),
        ) from error


@contextmanager
def _threads(torch: ModuleType, threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _seconds(call: Callable[[], object], runs: int) -> list[float]:
    call()
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return seconds
