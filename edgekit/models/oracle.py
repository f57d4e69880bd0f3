"""Reference results of a model, from a runtime independent of TVM.

Each format uses the runtime of its authors: onnxruntime, LiteRT's reference kernels, PyTorch. They
are optional packages; importing this module imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.models.comparison import Leeway
from edgekit.models.ends import NO_ENDS
from edgekit.models.foreign_formats import LOADERS
from edgekit.models.model import ModelSource
from edgekit.models.oracle_process import ChildOracle, Start
from edgekit.models.oracle_types import Oracle, blamed, installed_or_unknown, package, seconds_of


def oracle_for(source: ModelSource, start: Start = ChildOracle) -> Oracle:
    """Return the oracle for a model's format; MissingToolError if its package is not installed.

    It runs in a child process: a runtime that crashes is an error. `in_this_process` as `start`
    suits a process that may crash.
    """
    if source.ends:
        from edgekit.models.ends.oracle import with_ends

        return with_ends(oracle_for(replace(source, ends=NO_ENDS), start), source, start)
    if source.format in LOADERS:
        from edgekit.models.foreign.conversion import translation

        return oracle_for(translation(source), start)
    if source.format == "onnx":
        from edgekit.models.onnx_oracle import OnnxOracle

        return OnnxOracle(source, start)
    return start(LiteRtOracle if source.format == "tflite" else TorchOracle, source)


class LiteRtOracle:
    """LiteRT with its reference kernels, which define what quantised operators mean."""

    name = "LiteRT"

    def __init__(self, source: ModelSource) -> None:
        from edgekit.models.tflite import input_names, input_shapes, output_names
        from edgekit.models.tflite.file import read_tflite
        from edgekit.models.tflite.oracle_custom import cut
        from edgekit.models.tflite.oracle_states import with_access
        from edgekit.models.tflite.states import states_of

        self._interpreters = package("ai_edge_litert.interpreter", "tflite")
        self.version = installed_or_unknown("ai-edge-litert")
        file = read_tflite(source.path)  # This checks more than LiteRT does, which is native code.
        self._states = states_of(file)
        handled = [state for state in self._states if state.variable.tensor < 0]
        self._content = with_access(file.data, handled) if handled else file.data
        self._cut = cut(file, self._content)
        if self._cut is not None:
            self._content = self._cut.content
        self._inputs = input_names(file)
        self._outputs = output_names(file)
        self._shapes = input_shapes(file, source)
        self._interpreter = self._open(threads=1, reference=True)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with blamed(self):
            self._set(self._interpreter, inputs)
            if self._cut is None:
                self._interpreter.invoke()
            else:
                self._cut.invoke(self._interpreter)
            values = [
                np.array(self._interpreter.get_tensor(detail["index"]))
                for detail in self._interpreter.get_output_details()[: len(self._outputs)]
            ]
            following = self._following()
        return {**dict(zip(self._outputs, values, strict=True)), **following}

    def _following(self) -> dict[str, Array]:
        """Return the state that the last call left."""
        from edgekit.models.tflite.oracle_states import read

        values = read(self._interpreter, self._states) if self._states else []
        return {state.output.name: value for state, value in zip(self._states, values, strict=True)}

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        return {}

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        interpreter = self._open(threads, reference=False)
        with blamed(self):
            self._set(interpreter, inputs)
            return seconds_of(interpreter.invoke, runs)

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
            own = interpreter.get_input_details()[: len(self._shapes)]
            for detail, shape in zip(own, self._shapes, strict=True):
                if tuple(detail["shape"]) != shape:
                    interpreter.resize_tensor_input(detail["index"], shape)
            interpreter.allocate_tensors()
            if self._states:
                interpreter.invoke()  # The first call gives the variables their first values.
        return interpreter

    def _interpreter_with(self, kernels: Any, threads: int) -> Any:
        return self._interpreters.Interpreter(
            model_content=self._content,
            num_threads=threads,
            experimental_op_resolver_type=kernels,
        )

    def _set(self, interpreter: Any, inputs: Mapping[str, Array]) -> None:
        own = interpreter.get_input_details()[: len(self._inputs)]
        for detail, name in zip(own, self._inputs, strict=True):
            interpreter.set_tensor(detail["index"], inputs[name])
        if self._states:
            from edgekit.models.tflite.oracle_states import write

            write(interpreter, self._states, inputs)


class TorchOracle:
    """The saved program, run by PyTorch eagerly."""

    name = "PyTorch"

    def __init__(self, source: ModelSource) -> None:
        from edgekit.models.binding import bind_inputs
        from edgekit.models.torch.program import open_program

        self._torch = package("torch", "torch")
        self.version = installed_or_unknown("torch")
        opened = open_program(source)
        self._outline, self._program = opened.outline, opened.program
        self._constants = bind_inputs(opened.outline.inputs, source).constants
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
            return seconds_of(self._call(inputs), runs)

    def _call(self, inputs: Mapping[str, Array]) -> Callable[[], Sequence[Any]]:
        from torch.utils import _pytree as pytree

        from edgekit.models.torch.program import arguments

        given = {**inputs, **self._constants}
        tensors = [self._tensor(given[spec.name]) for spec in self._outline.inputs]
        positional, keywords = arguments(self._program, tensors)

        def call() -> Sequence[Any]:
            leaves: Sequence[Any] = pytree.tree_leaves(self._module(*positional, **keywords))
            return leaves

        return call

    def _tensor(self, array: Array) -> Any:
        if array.dtype.name == "bfloat16":  # torch does not accept numpy's extension type.
            return self._torch.from_numpy(array.view(np.int16).copy()).view(self._torch.bfloat16)
        # Not np.ascontiguousarray, which makes a scalar a vector of one.
        return self._torch.from_numpy(np.asarray(array, order="C"))

    def _array(self, tensor: Any) -> Array:
        if tensor.dtype == self._torch.bfloat16:
            halves: Array = tensor.contiguous().view(self._torch.int16).numpy()
            return halves.view(numpy_dtype("bfloat16"))
        return np.array(tensor.numpy())


@contextmanager
def _threads(torch: ModuleType, threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
