"""Instruction sets: the kernel's words for them, LLVM's words, and the CPUs that have them.

Checked against the LLVM inside TVM by tests/integration/profiles/test_profiles_llvm.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Instructions:
    """A group of instructions with a flag of the kernel."""

    llvm: str
    """LLVM's name for it."""
    needs: tuple[str, ...] = ()
    """Flags of the groups that LLVM enables with this one."""


CORTEX_M_FEATURES = ("dsp", "fpu-single", "fpu-double", "mve-integer", "mve-float")

_V2 = ("pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16", "lahf_lm")
_V3 = (*_V2, "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
X86_LEVELS: Mapping[str, tuple[str, ...]] = {
    "x86-64-v4": _V4,
    "x86-64-v3": _V3,
    "x86-64-v2": _V2,
    "x86-64": (),
}

# What is needed stands before what needs it. AMX is not here: a process must ask the kernel for
# its registers first, and is killed where it did not.
X86_FLAGS: Mapping[str, Instructions] = {
    "pni": Instructions("sse3"),
    "ssse3": Instructions("ssse3", ("pni",)),
    "sse4_1": Instructions("sse4.1", ("ssse3",)),
    "sse4_2": Instructions("sse4.2", ("sse4_1",)),
    "popcnt": Instructions("popcnt"),
    "cx16": Instructions("cx16"),
    "lahf_lm": Instructions("sahf"),
    "aes": Instructions("aes"),
    "pclmulqdq": Instructions("pclmul"),
    "xsave": Instructions("xsave"),
    "avx": Instructions("avx", ("sse4_2",)),
    "f16c": Instructions("f16c", ("avx",)),
    "fma": Instructions("fma", ("avx",)),
    "avx2": Instructions("avx2", ("avx",)),
    "bmi1": Instructions("bmi"),
    "bmi2": Instructions("bmi2"),
    "abm": Instructions("lzcnt"),
    "movbe": Instructions("movbe"),
    "avx_vnni": Instructions("avxvnni", ("avx2",)),
    "gfni": Instructions("gfni"),
    "vaes": Instructions("vaes", ("avx2", "aes")),
    "vpclmulqdq": Instructions("vpclmulqdq", ("avx", "pclmulqdq")),
    "avx512f": Instructions("avx512f", ("avx2", "f16c", "fma")),
    "avx512cd": Instructions("avx512cd", ("avx512f",)),
    "avx512dq": Instructions("avx512dq", ("avx512f",)),
    "avx512bw": Instructions("avx512bw", ("avx512f",)),
    "avx512vl": Instructions("avx512vl", ("avx512f",)),
    "avx512ifma": Instructions("avx512ifma", ("avx512f",)),
    "avx512vbmi": Instructions("avx512vbmi", ("avx512bw",)),
    "avx512_vbmi2": Instructions("avx512vbmi2", ("avx512bw",)),
    "avx512_vnni": Instructions("avx512vnni", ("avx512f",)),
    "avx512_bitalg": Instructions("avx512bitalg", ("avx512bw",)),
    "avx512_vpopcntdq": Instructions("avx512vpopcntdq", ("avx512f",)),
    "avx512_bf16": Instructions("avx512bf16", ("avx512bw",)),
    "avx512_fp16": Instructions("avx512fp16", ("avx512bw", "avx512dq", "avx512vl")),
}

_ICELAKE = (
    *_V4, "aes", "pclmulqdq", "gfni", "vaes", "vpclmulqdq", "avx512ifma", "avx512vbmi",
    "avx512_vbmi2", "avx512_vnni", "avx512_bitalg", "avx512_vpopcntdq",
)  # fmt: skip
_ZEN = (*_V3, "aes", "pclmulqdq")
# What LLVM takes for granted when it hears the name.
X86_CPUS: Mapping[str, tuple[str, ...]] = {
    "haswell": (*_V3, "pclmulqdq"),
    "broadwell": (*_V3, "pclmulqdq"),
    "skylake": (*_V3, "aes", "pclmulqdq"),
    "skylake-avx512": (*_V4, "aes", "pclmulqdq"),
    "cascadelake": (*_V4, "aes", "pclmulqdq", "avx512_vnni"),
    "icelake-client": _ICELAKE,
    "icelake-server": _ICELAKE,
    "tigerlake": _ICELAKE,
    "rocketlake": _ICELAKE,
    "alderlake": (*_V3, "aes", "pclmulqdq", "gfni", "vaes", "vpclmulqdq", "avx_vnni"),
    "znver1": _ZEN,
    "znver2": _ZEN,
    "znver3": (*_ZEN, "vaes", "vpclmulqdq"),
    "znver4": (*_ICELAKE, "avx512_bf16"),
    "znver5": (*_ICELAKE, "avx512_bf16", "avx_vnni"),
}

ARM_FLAGS: Mapping[str, Instructions] = {
    "fp": Instructions("fp-armv8"),
    "asimd": Instructions("neon", ("fp",)),
    "crc32": Instructions("crc"),
    "aes": Instructions("aes", ("asimd",)),
    "sha2": Instructions("sha2", ("asimd",)),
    "atomics": Instructions("lse"),
    "asimdrdm": Instructions("rdm", ("asimd",)),
    "asimdhp": Instructions("fullfp16", ("asimd",)),
    "asimddp": Instructions("dotprod", ("asimd",)),
    "lrcpc": Instructions("rcpc"),
    "asimdfhm": Instructions("fp16fml", ("asimdhp",)),
    "bf16": Instructions("bf16", ("asimd",)),
    "i8mm": Instructions("i8mm", ("asimd",)),
}
# The same core is sold with and without these, so its name promises nothing about them.
ARM_OPTIONAL_FLAGS = ("aes", "sha2")

_ARM_V8 = ("fp", "asimd", "crc32")
_ARM_V82 = (*_ARM_V8, "atomics", "asimdrdm", "asimdhp")
_ARM_V82_DOT = (*_ARM_V82, "asimddp", "lrcpc")
# What LLVM takes for granted when it hears the name, apart from the optional ones.
ARM_CPUS: Mapping[str, tuple[str, ...]] = {
    "cortex-a35": _ARM_V8,
    "cortex-a53": _ARM_V8,
    "cortex-a57": _ARM_V8,
    "cortex-a72": _ARM_V8,
    "cortex-a73": _ARM_V8,
    "cortex-a55": _ARM_V82_DOT,
    "cortex-a75": _ARM_V82_DOT,
    "cortex-a76": _ARM_V82_DOT,
    "cortex-a77": _ARM_V82_DOT,
    "cortex-a78": _ARM_V82_DOT,
    "cortex-a78ae": _ARM_V82_DOT,
    "cortex-x1": _ARM_V82_DOT,
    "neoverse-n1": _ARM_V82_DOT,
    "carmel": _ARM_V82,
}

_AARCH64_CPUS = """
a64fx ampere1 ampere1a ampere1b ampere1c apple-a10 apple-a11 apple-a12 apple-a13 apple-a14
apple-a15 apple-a16 apple-a17 apple-a7 apple-m4 apple-m5 c1-nano c1-premium c1-pro c1-ultra
carmel cortex-a320 cortex-a34 cortex-a35 cortex-a510 cortex-a520 cortex-a520ae cortex-a53
cortex-a55 cortex-a57 cortex-a65 cortex-a65ae cortex-a710 cortex-a715 cortex-a72 cortex-a720
cortex-a720ae cortex-a725 cortex-a73 cortex-a75 cortex-a76 cortex-a76ae cortex-a77 cortex-a78
cortex-a78ae cortex-a78c cortex-x1 cortex-x1c cortex-x2 cortex-x3 cortex-x4 cortex-x925
exynos-m3 exynos-m4 exynos-m5 falkor fujitsu-monaka gb10 generic grace kryo neoverse-512tvb
neoverse-e1 neoverse-n1 neoverse-n2 neoverse-n3 neoverse-v1 neoverse-v2 neoverse-v3
neoverse-v3ae olympus oryon-1 saphira thunderx thunderx2t99 thunderx3t110 thunderxt81
thunderxt83 thunderxt88 tsv110
"""
_X86_64_CPUS = """
alderlake amdfam10 arrowlake arrowlake-s atom barcelona bdver1 bdver2 bdver3 bdver4 bonnell
broadwell btver1 btver2 cannonlake cascadelake clearwaterforest cooperlake core-avx-i core-avx2
core2 corei7 corei7-avx diamondrapids emeraldrapids goldmont goldmont-plus gracemont grandridge
graniterapids graniterapids-d haswell icelake-client icelake-server ivybridge k8 k8-sse3 knl knm
lunarlake meteorlake nehalem nocona novalake opteron opteron-sse3 pantherlake penryn raptorlake
rocketlake sandybridge sapphirerapids sierraforest silvermont skx skylake skylake-avx512 slm
tigerlake tremont westmere wildcatlake x86-64 x86-64-v2 x86-64-v3 x86-64-v4 znver1 znver2 znver3
znver4 znver5
"""
_CORTEX_M_CPUS = """
cortex-m0 cortex-m0plus cortex-m1 cortex-m23 cortex-m3 cortex-m33 cortex-m35p cortex-m4
cortex-m52 cortex-m55 cortex-m7 cortex-m85
"""
# LLVM compiles for "generic" when it does not know a name, and says so only in its log.
LLVM_CPUS: Mapping[str, tuple[str, ...]] = {
    "aarch64": tuple(_AARCH64_CPUS.split()),
    "x86_64": tuple(_X86_64_CPUS.split()),
    "cortex-m": tuple(_CORTEX_M_CPUS.split()),
}
LLVM_FEATURES: Mapping[str, tuple[str, ...]] = {
    "aarch64": (*(flag.llvm for flag in ARM_FLAGS.values()), "sve", "sve2", "sme"),
    "x86_64": tuple(flag.llvm for flag in X86_FLAGS.values()),
}
CPU_FLAGS: Mapping[str, tuple[str, ...]] = {
    "aarch64": tuple(ARM_FLAGS),
    "x86_64": tuple(X86_FLAGS),
    "cortex-m": CORTEX_M_FEATURES,
}
