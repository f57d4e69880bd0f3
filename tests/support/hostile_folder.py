"""A folder as a stranger may have written it: whatever in it is run or read leaves a mark."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_MODULES = (
    *("asyncio", "secrets", "tvm", "tvm_ffi", "numpy", "onnx", "onnxruntime", "tornado", "tomli"),
    *("runpy", "signal", "pickle", "json", "socket", "threading", "typing", "ctypes", "paramiko"),
    *("sitecustomize", "usercustomize", "ensurepip", "setuptools", "psutil", "sqlalchemy"),
    *("edgekit/__init__", "edgekit/__main__", "pip/__init__", "pip/__main__"),
)
_PROGRAMS = (
    *("gcc", "g++", "cc", "c++", "ld", "as", "ar", "strip", "objcopy", "cmake", "ninja", "python"),
    *("openocd", "pyocd", "stm32loader", "gdb-multiarch", "qemu-system-arm", "qemu-img", "ssh"),
    *("ssh-keygen", "setpriv", "tar", "apt-get", "dpkg-deb", "labgrid-client", "zig", "nvcc"),
    *("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "arm-none-eabi-gcc"),
)
_TCL = ("openocd.cfg", "target/nrf52.cfg", "interface/cmsis-dap.cfg", "board/nrf52.cfg")


@dataclass(frozen=True)
class HostileFolder:
    path: Path
    marks: Path

    @property
    def left(self) -> list[str]:
        """What was run or read since."""
        return sorted(item.name for item in self.marks.iterdir())

    @property
    def search_path(self) -> str:
        """PATH with every way to say "the current folder"."""
        return f":.:./bin:bin:{os.environ['PATH']}:"


def hostile_folder(place: Path) -> HostileFolder:
    path, marks = place / "project", place / "marks"
    marks.mkdir(parents=True)

    def mark(name: str) -> str:
        return str(marks / name.replace("/", "."))

    def write(name: str, text: str) -> Path:
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    for name in _MODULES:
        write(f"{name}.py", f"open({mark(name)!r}, 'w').close()\n")
    for name in _PROGRAMS:
        for file in (name, f"bin/{name}"):
            write(file, f"#!/bin/sh\n: >'{mark(file)}'\nexit 1\n").chmod(0o755)
    for name in _TCL:
        write(name, f"close [open {{{mark(name)}}} w]\n")
    write(".gdbinit", f"shell touch '{mark('gdbinit')}'\n")
    write("pyocd_user.py", f"open({mark('pyocd_user')!r}, 'w').close()\n")
    write("pyocd.yaml", "user_script: pyocd_user.py\n")
    write("CMakePresets.json", "{")
    write("evil-1.dist-info/entry_points.txt", "[edgekit.backends]\nevil = pip:backend\n")
    write("evil-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    return HostileFolder(path, marks)


def launcher(place: Path) -> Path:
    """The program `edgekit` as an installer writes it: Python puts its folder, and not the current
    one, on the path of modules."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "edgekit"
    file.write_text("import sys\nfrom edgekit.__main__ import main\nsys.exit(main())\n")
    return file
