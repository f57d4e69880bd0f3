from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import ProfileError
from edgekit.profiles.architecture import Instructions, architecture, architectures
from edgekit.profiles.cpu import Cpu, Target, detect_cpu, this_cpu

X86, ARM = architectures()["x86_64"], architectures()["aarch64"]
V2 = X86.instructions("x86-64-v2")
V3 = X86.instructions("x86-64-v3")
V4 = X86.instructions("x86-64-v4")
RPI = "fp asimd evtstrm crc32 cpuid"


def _x86(
    flags: Iterable[str], vendor: str = "GenuineIntel", family: int = 6, model: int = 0
) -> str:
    block = (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: Some CPU\nflags\t\t: fpu sse2 {' '.join(flags)}\nbugs\t\t: spectre\n"
    )
    return "\n".join([block, block.replace("processor\t: 0", "processor\t: 1")])


def _arm(*processors: tuple[int, int, str]) -> str:
    return "\n".join(
        f"processor\t: {number}\nBogoMIPS\t: 108.00\nFeatures\t: {features}\n"
        f"CPU implementer\t: {implementer:#04x}\nCPU part\t: {part:#05x}\n"
        for number, (implementer, part, features) in enumerate(processors)
    )


def _switched_on(target: Target) -> set[str]:
    """Every flag whose instructions LLVM may use for a target."""
    known = X86 if target.triple.startswith("x86_64") else ARM
    used = set(known.implied(target.cpu))
    names = {instructions.llvm: flag for flag, instructions in known.flags.items()}
    for feature in target.features:
        flag = names[feature[1:]]
        used = used | _with_needs(flag, known.flags) if feature[0] == "+" else used - {flag}
    return used


def _with_needs(flag: str, table: Mapping[str, Instructions]) -> set[str]:
    return {flag}.union(*(_with_needs(need, table) for need in table[flag].needs))


@pytest.mark.parametrize(
    ("flags", "cpu", "features"),
    [
        ((), "x86-64", ()),
        (V2, "x86-64-v2", ()),
        ((*V2, "avx"), "x86-64-v2", ("+avx",)),
        (V3, "x86-64-v3", ()),
        (tuple(f for f in V3 if f != "movbe"), "x86-64-v2",
         ("+xsave", "+avx", "+f16c", "+fma", "+avx2", "+bmi", "+bmi2", "+lzcnt")),
        (V4, "x86-64-v4", ()),
        ((*V4, "avx512_vnni", "amx_tile", "amx_int8"), "x86-64-v4", ("+avx512vnni",)),
        # A hypervisor that masks AVX2 but not what is built on it.
        (tuple(f for f in V4 if f != "avx2"), "x86-64-v2",
         ("+xsave", "+avx", "+f16c", "+fma", "+bmi", "+bmi2", "+lzcnt", "+movbe")),
    ],
)  # fmt: skip
def test_an_unknown_x86_gets_the_highest_level_its_flags_fill(
    flags: tuple[str, ...], cpu: str, features: tuple[str, ...]
) -> None:
    _, target = detect_cpu(_x86(flags), "x86_64", 1)
    assert (target.cpu, target.features) == (cpu, features)


@pytest.mark.parametrize(
    ("vendor", "family", "model", "name"),
    [
        ("GenuineIntel", 6, 60, "haswell"),
        ("GenuineIntel", 6, 94, "skylake"),
        ("GenuineIntel", 6, 85, "cascadelake"),
        ("GenuineIntel", 6, 106, "icelake-server"),
        ("AuthenticAMD", 0x17, 0x01, "znver1"),
        ("AuthenticAMD", 0x17, 0x2F, "znver1"),
        ("AuthenticAMD", 0x17, 0x30, "znver2"),
        ("AuthenticAMD", 0x17, 0x31, "znver2"),
        ("AuthenticAMD", 0x19, 0x21, "znver3"),
        ("AuthenticAMD", 0x19, 0x11, "znver4"),
        ("AuthenticAMD", 0x19, 0x61, "znver4"),
        ("AuthenticAMD", 0x19, 0xA0, "znver4"),
        ("AuthenticAMD", 0x19, 0x50, "znver3"),
        ("AuthenticAMD", 0x1A, 0x44, "znver5"),
    ],
)
def test_a_known_x86_is_called_by_llvms_name_and_only_while_it_keeps_the_promise(
    vendor: str, family: int, model: int, name: str
) -> None:
    text = _x86(X86.instructions(name), vendor, family, model)
    assert detect_cpu(text, "x86_64", 1)[1].cpu == name
    for masked in X86.instructions(name):
        kept = [flag for flag in X86.instructions(name) if flag != masked]
        _, target = detect_cpu(_x86(kept, vendor, family, model), "x86_64", 1)
        assert masked not in _switched_on(target)


def test_skylake_server_is_cascade_lake_without_vnni() -> None:
    flags = [flag for flag in X86.instructions("cascadelake") if flag != "avx512_vnni"]
    assert detect_cpu(_x86(flags, model=85), "x86_64", 1)[1].cpu == "skylake-avx512"


@given(
    flags=st.sets(st.sampled_from([*X86.flags, "amx_tile", "sse4a", "rdtscp"])),
    family=st.sampled_from([6, 0x17, 0x19, 0x1A]),
    model=st.integers(0, 255),
    vendor=st.sampled_from(["GenuineIntel", "AuthenticAMD", "Other"]),
)
def test_no_x86_is_given_an_instruction_that_it_lacks(
    flags: set[str], family: int, model: int, vendor: str
) -> None:
    cpu, target = detect_cpu(_x86(sorted(flags), vendor, family, model), "x86_64", 1)
    assert _switched_on(target) <= set(cpu.features) <= flags


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0x41, 0x4E, 0x61]),
            st.sampled_from([0xD03, 0xD08, 0xD0B, 0xD41, 0x004, 0x123]),
            st.sets(st.sampled_from([*ARM.flags, "sve", "fphp"])).map(
                lambda flags: " ".join(sorted(flags | {"fp", "asimd"}))
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_arm_is_given_an_instruction_that_one_of_its_cores_lacks(
    processors: list[tuple[int, int, str]],
) -> None:
    cpu, target = detect_cpu(_arm(*processors), "aarch64", 1)
    shared = set.intersection(*(set(features.split()) for _, _, features in processors))
    assert _switched_on(target) <= set(cpu.features) <= shared
    assert cpu.cores == len(processors)


def test_a_raspberry_pi_4_is_a_cortex_a72_without_cryptography() -> None:
    cpu, target = detect_cpu(_arm(*[(0x41, 0xD08, RPI)] * 4), "aarch64", 1)
    assert (cpu.name, cpu.cores) == ("cortex-a72", 4)
    assert target == Target(
        "llvm", "aarch64-linux-gnu", "cortex-a72", ("+neon", "-aes", "-sha2"), 4
    )


def test_big_and_little_cores_share_what_both_have() -> None:
    big = RPI + " atomics asimdrdm asimdhp asimddp lrcpc"
    text = _arm((0x41, 0xD03, RPI), (0x41, 0xD0B, big))
    _, target = detect_cpu(text, "aarch64", 1)
    assert (target.cpu, target.features) == ("generic", ("+neon", "+crc"))


def test_cores_of_two_kinds_have_no_common_name_even_where_their_flags_are_alike() -> None:
    for parts in ((0xD03, 0xD08), (0xD08, 0xD03)):
        cpu, target = detect_cpu(_arm(*((0x41, part, RPI) for part in parts)), "aarch64", 1)
        assert (cpu.name, target.cpu) == ("generic", "generic")


@pytest.mark.parametrize("text", ["", "\n\n\n", "processor: x\n", "flags\n", "processor : 0"])
def test_a_cpuinfo_that_says_nothing_means_the_baseline(text: str) -> None:
    assert detect_cpu(text, "x86_64", 3)[1].cpu == "x86-64"
    assert detect_cpu(text, "aarch64", 3)[1].cpu == "generic"


@given(text=st.text(), machine=st.sampled_from(["x86_64", "aarch64"]))
def test_any_text_gives_a_cpu(text: str, machine: str) -> None:
    cpu, target = detect_cpu(text, machine, 1)
    assert cpu.cores >= 1
    assert json.loads(target.as_json())["num-cores"] == target.cores


def test_another_architecture_is_refused_with_a_way_on() -> None:
    with pytest.raises(ProfileError, match="loongarch64") as caught:
        detect_cpu("processor : 0\n", "loongarch64", 1)
    assert "--board" in (caught.value.hint or "")


def test_this_machine_has_a_cpu() -> None:
    cpu, target = this_cpu()
    assert isinstance(cpu, Cpu)
    assert cpu.arch == os.uname().machine
    assert cpu.cores >= len(os.sched_getaffinity(0))
    assert set(cpu.features) <= set(architectures()[cpu.arch].flags)
    assert target.kind == "llvm"


@pytest.mark.parametrize(
    ("triple", "name"),
    [
        ("aarch64-linux-gnu", "aarch64"),
        ("arm64-apple-darwin", "aarch64"),
        ("amd64-linux-gnu", "x86_64"),
        ("x86_64-unknown-linux-musl", "x86_64"),
        ("arm-none-eabi", "cortex-m"),
        ("thumbv7em-none-eabi", "cortex-m"),
        ("armv7-linux-gnueabihf", "armv7l"),
        ("riscv64-linux-gnu", "riscv64"),
    ],
)
def test_an_architecture_has_one_name_whoever_spells_the_triple(triple: str, name: str) -> None:
    assert architecture(triple) == name


U74 = (
    "processor\t: 0\nhart\t: 1\nisa\t: rv64imafdc_zicsr_zba\nmmu\t: sv39\nuarch\t: sifive,u74-mc\n"
)
A7 = (
    "processor\t: 0\nFeatures\t: half thumb neon vfpv3 vfpv4 idiva idivt\n"
    "CPU implementer\t: 0x41\nCPU part\t: 0xc07\n"
)


@pytest.mark.parametrize(
    ("text", "machine", "cpu", "features"),
    [
        (U74, "riscv64", "sifive-u74", ("+zba",)),
        (U74.replace("sifive,u74-mc", "new"), "riscv64", "generic-rv64",
         ("+m", "+a", "+f", "+d", "+c", "+zba")),
        (U74.replace("rv64imafdc", "rv64gcv"), "riscv64", "sifive-u74", ("+zve64d", "+zba")),
        (A7, "armv7l", "cortex-a7", ()),
        (A7, "armv8l", "cortex-a7", ()),
        (A7.replace(" neon", ""), "armv7l", "generic", ("-neon", "+vfp4", "+hwdiv-arm", "+hwdiv")),
    ],
)  # fmt: skip
def test_the_kernel_tells_what_the_cpus_of_other_architectures_have(
    text: str, machine: str, cpu: str, features: tuple[str, ...]
) -> None:
    _, target = detect_cpu(text, machine, 1)
    assert (target.cpu, target.features) == (cpu, features)
    assert json.loads(target.as_json())["mtriple"] == target.triple
