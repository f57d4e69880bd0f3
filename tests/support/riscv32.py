"""C on an emulated RV32: compiled with picolibc, run in QEMU, its instructions read back.

As cortex_m.py, whose `harness.h` declares what counts.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.cortex_m import Ran, compiled

COMPILER = "riscv64-unknown-elf"
FLAGS = ("-march=rv32imac", "-mabi=ilp32", "--specs=picolibc.specs")
_HARNESS = Path(__file__).with_name("riscv32_harness")
_DECLARED = Path(__file__).with_name("cortex_m_harness")
_PLACES = {
    "__flash": "0x80000000",
    "__flash_size": "4M",
    "__ram": "0x80800000",
    "__ram_size": "4M",
    "__stack_size": "64k",
}
MEMORY = (*(f"-Wl,--defsym={name}={value}" for name, value in _PLACES.items()), "-Tpicolibc.ld")
"""Options of the linker for a machine with so much memory."""
_COUNT = re.compile(r"^##count (\S+) ([0-9]+)\r?\n", re.MULTILINE)


def build_elf(
    sources: Sequence[Path], folder: Path, flags: Sequence[str], includes: Sequence[Path]
) -> Path:
    elf = folder / "test.elf"
    command = [f"{COMPILER}-gcc", *FLAGS, "-ffunction-sections", "-fdata-sections", *flags]
    command += [f"-I{include}" for include in (_DECLARED, folder, *includes)]
    command += [*map(str, sources), str(_HARNESS / "count.c"), "--oslib=semihost"]
    command += ["--crt0=hosted"]
    compiled([*command, "-Wl,--gc-sections", *MEMORY, "-lm", "-o", str(elf)])
    return elf


def run_elf(elf: Path, limit_s: float = 300.0) -> Ran:
    command = ["qemu-system-riscv32", "-M", "virt", "-cpu", "rv32,f=false,d=false", "-m", "16M"]
    command += ["-nodefaults", "-display", "none", "-monitor", "none", "-serial", "null"]
    command += ["-icount", "shift=0", "-bios", "none", "-kernel", str(elf)]
    command += ["-semihosting-config", "enable=on,target=native"]
    # QEMU writes a console's characters to its standard error.
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s
    )
    said = done.stderr
    assert done.returncode == 0, f"it returned {done.returncode}:\n{said}"
    counts = {name: int(count) for name, count in _COUNT.findall(said)}
    return Ran(_COUNT.sub("", said), counts, done.returncode)
