"""The properties of a CPU that schedules depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgekit.base.errors import BuildError
from edgekit.compiler.schedules.dot_products import DotProduct, dot_product_of, matrix_product_of
from edgekit.profiles.architecture import architecture_of


@dataclass(frozen=True)
class Machine:
    lanes: int
    """float32 lanes of a vector."""
    registers: int
    """The number of vector registers."""
    cores: int
    near_bytes: int = 1 << 19
    """Bytes of the core's own cache for repeated reads, as opposed to the shared cache."""
    dot: DotProduct | None = None
    """The instruction that multiplies small integers and adds them."""
    matrix: DotProduct | None = None
    """The same for two pixels at once, where there is such an instruction."""
    multiplies_by_lane: bool = False
    """Whether a vector times one lane of another is one instruction: broadcast numbers then need no
    loads of their own."""
    parallel_work: int = 200_000
    """The least number of elements touched, or multiplied and added, for which waking the other
    cores pays."""


def machine_of(target: Any) -> Machine:
    """Return the machine of a TVM target: LLVM knows the features of each CPU."""
    from tvm.target.codegen import llvm_get_targets, target_has_features

    if target.kind.name == "cuda":
        raise BuildError(
            "kernels for a GPU have TVM's own schedules: there is nothing to choose or to tune",
            hint="only kernels for a CPU can be tuned",
        )
    cores = int(target.attrs.get("num-cores", 1))
    triple = str(target.attrs.get("mtriple", "x86_64"))
    known = architecture_of(triple)
    if known is None or (known.llvm.target or known.name) not in llvm_get_targets():
        # Asked for its vector width, TVM would crash.
        raise BuildError(
            f"LLVM does not support {triple}", hint="correct the triple in the board's profile"
        )
    vectors = next(
        vectors
        for vectors in known.vectors
        if not vectors.feature or target_has_features(vectors.feature, target)
    )
    return Machine(
        vectors.lanes,
        vectors.registers,
        cores,
        dot=dot_product_of(target, known.dot_products),
        matrix=matrix_product_of(target, known.dot_products),
        multiplies_by_lane=known.multiplies_by_lane,
    )
