"""A model in an engine: what is the same in each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.devices.local.step_times import StepTimes


@dataclass(frozen=True)
class Tensor:
    """A tensor as the module describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    """Bytes."""

    def array(self, data: bytes | bytearray) -> Array:
        return np.frombuffer(bytes(data), numpy_dtype(self.dtype)).reshape(self.shape)


@dataclass(frozen=True)
class ModuleInfo:
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    steps: tuple[str, ...]


class EngineProgram(ABC):
    """A loaded model. A run overwrites its inputs, which are therefore written before each one."""

    info: ModuleInfo
    threads = 1

    @abstractmethod
    def write(self, arrays: Sequence[Array]) -> None: ...

    @abstractmethod
    def run(self) -> int:
        """Run the model; return the nanoseconds that the engine measured."""

    @abstractmethod
    def run_steps(self) -> Sequence[int]:
        """Run the model step by step; return the nanoseconds of each."""

    @abstractmethod
    def outputs(self) -> list[Array]: ...

    @property
    @abstractmethod
    def memory(self) -> int:
        """The bytes of the module's memory: weights, tensors and stack."""

    def prepare(self, arrays: Sequence[Array]) -> Callable[[], int]:
        """Return a function that runs the model on these inputs."""
        self._check(arrays)

        def call() -> int:
            self.write(arrays)
            return self.run()

        return call

    def profile(
        self, arrays: Sequence[Array], inferences: int, traced: int, done: Callable[[int], None]
    ) -> dict[str, object]:
        """Return the median time of each step, and a timeline of the first `traced` inferences."""
        self._check(arrays)
        taken = np.zeros((inferences, len(self.info.steps)), np.int64)
        for inference in range(inferences):
            self.write(arrays)
            taken[inference] = self.run_steps()
            done(inference + 1)
        return StepTimes.end_to_end(self.info.steps, taken).answer(traced)

    def _check(self, arrays: Sequence[Array]) -> None:
        """Refuse inputs of another size or type: the module would read beyond them."""
        if len(arrays) != len(self.info.inputs):
            raise ValueError(f"the model takes {len(self.info.inputs)} inputs, not {len(arrays)}")
        for tensor, array in zip(self.info.inputs, arrays, strict=True):
            if array.shape != tensor.shape or array.dtype != numpy_dtype(tensor.dtype):
                raise ValueError(
                    f"input {tensor.name} is {array.dtype} {array.shape}, "
                    f"not {tensor.dtype} {tensor.shape}"
                )
