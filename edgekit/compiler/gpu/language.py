"""What differs between the languages of GPUs' kernels, as data: OpenCL's C and CUDA's C++."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Language:
    """A language of kernels, which TVM writes."""

    kind: str
    """The kind of TVM's target."""
    integers: Mapping[int, str]
    """The signed integers, by their bits; unsigned ones have `unsigned` before it."""
    unsigned: str
    first_kernel: str = ""
    """The text before which TVM's preamble ends: what kernels call needs its types."""
    qualifiers: str = ""
    """The words before a function that kernels call."""
    one_name: bool = False
    """Whether a mathematical function has one name for all types, where C has a letter for each."""
    bits: str = "as_{made}(a)"
    """The expression that takes a number's bits as another type's."""
    saturated: str = "({made})convert_{wide}_sat(a)"
    """The expression that makes `wide`'s integer of a float of the type `of`, outside of its range
    too; NaN becomes 0."""
    saturating: Mapping[str, str] = field(default_factory=dict)
    """The word in `saturated` for each of the widest integers."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """The extension that a type needs."""

    @property
    def types(self) -> Mapping[str, str]:
        """The language's word for each type of TVM's."""
        return {
            **{f"int{bits}": word for bits, word in self.integers.items()},
            **{f"uint{bits}": f"{self.unsigned}{word}" for bits, word in self.integers.items()},
            "float16": "half",
            "float32": "float",
            "float64": "double",
            "bool": "bool",
        }


LANGUAGES: Mapping[str, Language] = {
    "opencl": Language(
        kind="opencl",
        integers={8: "char", 16: "short", 32: "int", 64: "long"},
        unsigned="u",
        one_name=True,
        saturating={"int32": "int", "int64": "long", "uint64": "ulong"},
        extensions={"half": "cl_khr_fp16", "double": "cl_khr_fp64"},
    ),
    "cuda": Language(
        kind="cuda",
        integers={8: "char", 16: "short", 32: "int", 64: "long long"},
        unsigned="unsigned ",
        first_kernel='extern "C" __global__',
        qualifiers="static __device__ __forceinline__ ",
        bits="*({made} *)&a",
        # A conversion of PTX saturates, but for NaN in 64 bits.
        saturated="a != a ? 0 : ({made})__{of}2{wide}_rz(({of})a)",
        saturating={"int32": "int", "int64": "ll", "uint64": "ull"},
    ),
}
