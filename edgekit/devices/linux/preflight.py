"""Checks of files against the device before they are sent, so that a mismatch is one sentence
instead of an illegal instruction or a loader's complaint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError
from edgekit.base.options import option
from edgekit.devices.elf import ElfNeeds, read_elf
from edgekit.profiles.architecture import architecture_of_machine

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.linux.connection import Connection
    from edgekit.devices.linux.probe import DeviceFacts, Processor

_OLDER_GLIBC = (
    "update the device's system, or build with a toolchain whose sysroot has an older glibc "
    "(sysroot in toolchains/*.toml)"
)

# Asks the device's own loader, which knows its cache, its paths and its hardware levels.
_LOADER = r"""\
LC_ALL=C; export LC_ALL
for library; do
  found=
  for folder in /lib /usr/lib /lib64 /usr/lib64 /usr/local/lib /lib/*-linux-gnu* \
      /usr/lib/*-linux-gnu*; do
    [ -e "$folder/$library" ] && found=$folder/$library && break
  done
  [ -z "$found" ] && found=$({ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null |
    sed -n "s|^.*$library .*=> ||p" | head -n 1)
  echo "library $library ${found:-none}"
  case "$library" in libstdc++*) [ -n "$found" ] &&
    tr '\000' '\n' <"$found" |  # BusyBox's grep ends a line where a zero is
      grep -o -e 'GLIBCXX_3\.4\.[0-9]*' -e 'CXXABI_1\.3\.[0-9]*' | sort -u | sed 's/^/version /';;
  esac
done"""


def check_machine(bundle: Bundle, cpu: Processor, name: str) -> None:
    """Raise DeviceError if a device with such a CPU can't run the bundle's library."""
    needs = read_elf(bundle.library)
    board = bundle.manifest.board.name
    if needs.machine != cpu.arch:
        raise DeviceError(
            f"the bundle was built for the board {board} ({needs.machine}), but {name} is a "
            f"{cpu.machine} machine",
            hint=f"build it again with {option('board')} for the board that the device is",
        )
    missing = missing_features(bundle.manifest.target, cpu.machine, cpu.cpuinfo)
    if missing:
        raise DeviceError(
            f"the bundle was built for {board}, whose CPU has {_listed(missing)}; the CPU of "
            f"{name} does not",
            hint="it would end with an illegal instruction: build it again for the board that the "
            "device is, or correct the features in the board's profile",
        )


def check_libraries(
    files: Iterable[Path], facts: DeviceFacts, connection: Connection, ours: frozenset[str]
) -> None:
    """Raise DeviceError if the device lacks a library that the files need, or has one too old."""
    name = connection.name
    needs = [read_elf(file) for file in files]
    for elf in needs:
        if elf.machine != facts.arch:
            raise DeviceError(
                f"{elf.name} is made for {elf.machine}, but the CPU of {name} is {facts.machine}",
                hint="check the toolchain of the board's profile",
            )
    _check_glibc(needs, facts, name)
    wanted = sorted({library for elf in needs for library in elf.libraries} - ours)
    if not wanted:
        return
    done = connection.run(("sh", "-c", _LOADER, "edgekit", *wanted), timeout=60)
    found, versions = parse_libraries(done.output)
    missing = [library for library in wanted if library not in found]
    if missing:
        raise lacks_libraries(name, missing)
    for family in ("GLIBCXX", "CXXABI"):
        newest = max((elf.versions.get(family, ()) for elf in needs), default=())
        if versions.get(family) and newest > versions[family]:
            raise DeviceError(
                f"{name} has libstdc++ with {family}_{_dotted(versions[family])}, but "
                f"{family}_{_dotted(newest)} is needed",
                hint="update libstdc++6 on the device, or build with an older compiler",
            )


def lacks_libraries(name: str, missing: Sequence[str]) -> DeviceError:
    return DeviceError(
        f"{name} lacks the libraries {', '.join(missing)}"
        if len(missing) > 1
        else f"{name} lacks the library {missing[0]}",
        hint="the model runs on a GPU with CUDA 13, which JetPack 7 has and no emulated twin: "
        "build it for another board"
        if any(library.startswith("libcuda") for library in missing)
        else "install them on the device (on Debian: apt-get install libstdc++6 libgcc-s1)",
    )


def missing_features(target: str, machine: str, cpuinfo: str) -> tuple[str, ...]:
    """Return the required CPU features that some core lacks, by the kernel's names."""
    known = architecture_of_machine(machine)
    key = known.cpuinfo.flags if known else ""
    lines = re.findall(rf"^{re.escape(key)}\s*:(.*)$", cpuinfo, re.MULTILINE) if key else []
    if known is None or not lines:
        return ()  # the kernel does not list features
    common = set.intersection(*(known.words_in(line) for line in lines))
    return tuple(flag for flag in required_features(target, machine) if flag not in common)


def required_features(target: str, machine: str) -> tuple[str, ...]:
    """Return the kernel's words for the instructions that a target lets the compiler use."""
    described = json.loads(target)
    described = described.get("host", described)  # a GPU's target has the CPU's in it
    features = [str(feature) for feature in described.get("mattr", [])]
    known = architecture_of_machine(machine)
    if known is None:
        return ()
    return known.required(str(described.get("mcpu", "generic")), features)


def parse_libraries(text: str) -> tuple[set[str], dict[str, tuple[int, ...]]]:
    """Return the libraries that the device has, and the newest version of each family."""
    found: set[str] = set()
    newest: dict[str, tuple[int, ...]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "library" and words[2] != "none":
            found.add(words[1])
        elif len(words) == 2 and words[0] == "version":
            family, _, number = words[1].partition("_")
            if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}", number):
                version = tuple(int(part) for part in number.split("."))
                newest[family] = max(newest.get(family, ()), version)
    return found, newest


def _check_glibc(needs: Iterable[ElfNeeds], facts: DeviceFacts, name: str) -> None:
    for elf in needs:
        wanted = elf.versions.get("GLIBC", ())
        if wanted and not facts.glibc:
            raise DeviceError(
                f"{name} has no glibc, or does not say which",
                hint="edgekit's boards run glibc (Debian, Ubuntu, Raspberry Pi OS); musl is none",
            )
        if wanted > facts.glibc:
            raise DeviceError(
                f"{elf.name} needs glibc {_dotted(wanted)}, and {name} has {_dotted(facts.glibc)}",
                hint=_OLDER_GLIBC,
            )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _listed(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
