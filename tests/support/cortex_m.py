"""C on emulated Cortex-M processors: compiled, run in QEMU, its output and instructions read back.

    ran = run_on("m4", {"test.c": TEXT}, flags=("-O2",), includes=[tree])
    ran.output            what printf wrote
    ran.instructions      {"conv": 12345} after count_begin(); …; count_end("conv");

`harness.h` declares the two. main() returns 0, or what should make the run fail.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.needs import CORTEX_M, require

_HARNESS = Path(__file__).with_name("cortex_m_harness")
_COUNT = re.compile(r"^##count (\S+) ([0-9]+)\n", re.MULTILINE)
_SHIFT = 6
"""QEMU's clock moves 2**shift nanoseconds with each instruction."""
_SCRIPT = """\
MEMORY
{{
  vectors (rx) : ORIGIN = {vectors:#x}, LENGTH = 1K
  code (rx) : ORIGIN = {code:#x}, LENGTH = {code_bytes}
  data (rw) : ORIGIN = {data:#x}, LENGTH = {data_bytes}
}}
ENTRY(reset)
SECTIONS
{{
  .vectors : {{ KEEP(*(.vectors)) }} > vectors
  .text : {{ *(.text*) *(.rodata*) . = ALIGN(4); }} > code
  .exidx : {{ *(.ARM.exidx* .ARM.extab*) }} > code
  .data : {{ data_start = .; *(.data*) . = ALIGN(4); data_end = .; }} > data AT > code
  data_load = LOADADDR(.data);
  .bss (NOLOAD) : {{ bss_start = .; *(.bss*) *(COMMON) . = ALIGN(8); bss_end = .; }} > data
  end = .;
  stack_top = ORIGIN(data) + LENGTH(data);
}}
"""


@dataclass(frozen=True)
class Emulated:
    """A processor and the machine that has it."""

    machine: str
    flags: tuple[str, ...]
    systick_hz: int
    vectors: int
    code: int
    code_bytes: int
    data: int
    data_bytes: int


_K, _M = 1 << 10, 1 << 20
_MPS2 = (25_000_000, 0, 0x400, 4 * _M - 0x400, 0x20000000, 4 * _M)
_MPS3 = (32_000_000, 0, 0x01000000, 2 * _M, 0x21000000, 4 * _M)
_STM32F405 = (168_000_000, 0x08000000, 0x08000400, _M - 0x400, 0x20000000, 128 * _K)
_M4 = ("-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
_M33 = ("-mcpu=cortex-m33", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard")

PROCESSORS: dict[str, Emulated] = {
    # Those without a machine of their own run on the next one that knows their instructions.
    "m0plus": Emulated("mps2-an386", ("-mcpu=cortex-m0plus", "-mfloat-abi=soft"), *_MPS2),
    "m3": Emulated("mps2-an385", ("-mcpu=cortex-m3", "-mfloat-abi=soft"), *_MPS2),
    "m4": Emulated("mps2-an386", _M4, *_MPS2),
    "m7": Emulated("mps2-an500", ("-mcpu=cortex-m7", "-mfpu=fpv5-d16", "-mfloat-abi=hard"), *_MPS2),
    "m33": Emulated("mps3-an547", _M33, *_MPS3),
    "m55": Emulated("mps3-an547", ("-mcpu=cortex-m55", "-mfpu=auto", "-mfloat-abi=hard"), *_MPS3),
    "stm32f405": Emulated("netduinoplus2", _M4, *_STM32F405),
}


@dataclass(frozen=True)
class Ran:
    output: str
    """The output without the lines that the harness wrote."""
    instructions: dict[str, int]
    """The last count under each name, to within a few instructions."""
    status: int
    """What main() returned; 99 after a fault."""


def run_on(
    processor: str,
    sources: Mapping[str, str] | Sequence[Path],
    *,
    flags: Sequence[str] = ("-O2",),
    includes: Sequence[Path] = (),
    limit_s: float = 300.0,
    check: bool = True,
) -> Ran:
    """Compile all sources as C99, link and run them; fails with what the compiler or main said."""
    require(*CORTEX_M)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        return run_elf(
            processor, build_elf(processor, sources, folder, flags, includes), limit_s, check
        )


def build_elf(
    processor: str,
    sources: Mapping[str, str] | Sequence[Path],
    folder: Path,
    flags: Sequence[str] = ("-O2",),
    includes: Sequence[Path] = (),
) -> Path:
    emulated = PROCESSORS[processor]
    if isinstance(sources, Mapping):
        for name, text in sources.items():
            (folder / name).write_text(text, encoding="utf-8")
        files = [folder / name for name in sources if not name.endswith(".h")]
    else:
        files = list(sources)
    script = folder / "harness.ld"
    script.write_text(_SCRIPT.format(**vars(emulated)), encoding="utf-8")
    elf = folder / "test.elf"
    command = ["arm-none-eabi-gcc", "-std=c99", "-mthumb", *emulated.flags]
    command += ["-ffunction-sections", "-fdata-sections", *flags]
    command += [f"-I{_HARNESS}", *(f"-I{include}" for include in (folder, *includes))]
    command += [str(file) for file in files]
    # Apart from the user's flags: the harness is not under test.
    objects = folder / "start.o"
    start = ["arm-none-eabi-gcc", "-std=c99", "-mthumb", *emulated.flags, "-O2"]
    compiled([*start, "-c", str(_HARNESS / "start.c"), "-o", str(objects)])
    command += [str(objects), "-nostartfiles", "--specs=rdimon.specs", "-Wl,--gc-sections"]
    command += [f"-T{script}", "-lm", "-o", str(elf)]
    compiled(command)
    return elf


def run_elf(
    processor: str,
    elf: Path,
    limit_s: float = 300.0,
    check: bool = True,
    more: Sequence[str] = (),
) -> Ran:
    emulated = PROCESSORS[processor]
    command = ["qemu-system-arm", "-M", emulated.machine, "-nodefaults", "-display", "none"]
    command += ["-monitor", "none", "-serial", "null", "-icount", f"shift={_SHIFT}"]
    command += ["-semihosting-config", "enable=on,target=native", *more, "-kernel", str(elf)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s
    )
    counts = {
        name: round(int(ticks) * 1_000_000_000 / emulated.systick_hz / (1 << _SHIFT))
        for name, ticks in _COUNT.findall(done.stdout)
    }
    ran = Ran(_COUNT.sub("", done.stdout), counts, done.returncode)
    if check:
        assert ran.status == 0, f"it returned {ran.status}:\n{ran.output}{done.stderr}"
    return ran


def compiled(command: Sequence[str]) -> None:
    """Run a compiler; fails with what it said."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
