"""Profiles for tests, and a machine on which users have none of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

LINUX_BOARD = """\
schema = 1
name = "{name}"
title = "A board"
kind = "linux"
vendor_url = "https://example.com/board"
toolchain = "aarch64-linux-gnu"

[cpu]
name = "Cortex-A72"
arch = "aarch64"
features = ["fp", "asimd", "crc32"]
cores = 4
compile_flags = ["-mcpu=cortex-a72"]

[target]
kind = "llvm"
triple = "aarch64-linux-gnu"
cpu = "cortex-a72"
features = ["+neon", "-aes"]

[offload]
default = ["ncnn"]
allowed = ["ncnn", "acl"]

[memory]
ram = "2 GiB"

[transport]
kind = "ssh"

[twin]
emulator = "qemu-system-aarch64"
machine = "virt"
cpu = "cortex-a72"
memory = "1 GiB"
"""

BAREMETAL_BOARD = """\
schema = 1
name = "{name}"
title = "A microcontroller"
kind = "baremetal"
vendor_url = "https://example.com/mcu"
toolchain = "arm-none-eabi"

[cpu]
name = "Cortex-M4"
arch = "cortex-m"
features = ["dsp"]
cores = 1

[target]
kind = "c"
triple = "arm-none-eabi"
cpu = "cortex-m4"

[offload]
default = []
allowed = ["cmsis-nn"]

[memory]
ram = "64 KiB"
flash = "256 KiB"

[[memory.region]]
name = "flash"
start = 0x08000000
size = "256 KiB"
use = "code"

[[memory.region]]
name = "ram"
start = 0x20000000
size = "64 KiB"
use = "data"

[transport]
kind = "serial"
baud = 115200
"""

TOOLCHAIN = """\
schema = 1
name = "{name}"
title = "A compiler"
triple = "{triple}"
compile_flags = []
link_flags = []
minimum_version = "{minimum_version}"

[tools]
cc = "{cc}"
cxx = "{cxx}"

[install]
debian = ["some-compiler"]
pip = []
notes = "from where compilers come from"
"""


def machine_without_profiles(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Work in an empty folder, as a user without configuration."""
    work = folder / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(folder / "home"))
    for variable in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("EDGEKIT_BOARD_PATH", "EDGEKIT_TOOLCHAIN_PATH", "EDGEKIT_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    return work


def write_profile(folder: Path, name: str, text: str, **values: str) -> Path:
    """Put a profile where `folder` is one of boards or toolchains."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    for key, value in {"name": name, **values}.items():
        text = text.replace("{" + key + "}", value)
    path.write_text(text, encoding="utf-8")
    return path
