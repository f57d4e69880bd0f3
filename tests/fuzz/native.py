"""The parsers in C and C++, with the address and undefined-behaviour sanitizers: libFuzzer where
clang has it, otherwise damaged data made here and run by the compiler that there is."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from edgekit.cross.runtime import ffi_headers, package_folder
from fuzz import seeds
from fuzz.crashes import crashes_of, keep_crash
from fuzz.effort import Effort
from fuzz.mutation import damaged

HERE = Path(__file__).parent / "native"
PACKAGE = Path(__file__).parents[2] / "edgekit"
AGENT = PACKAGE / "agent/src"
APP = PACKAGE / "verbs/export/template/src"
FIRMWARE = PACKAGE / "aot/firmware/source"
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1")
_SECONDS_FOR_ONE = 20
_AT_ONCE = 500
_NATIVE_TRIES = 20
"""Tries of a parser in C or C++ for each try of one in Python: it takes microseconds."""


@dataclass(frozen=True)
class NativeTarget:
    """A harness in `native`, and what is compiled with it."""

    harness: str
    sources: tuple[Path, ...]
    seeds: Callable[[], Sequence[bytes]]
    links_runtime: bool = False


def native_targets() -> dict[str, NativeTarget]:
    """Every target by name; none where there is no compiler."""
    if _compilers() is None:
        return {}
    return {
        "agent npy": NativeTarget("npy.cc", (AGENT / "npy.cc",), seeds.npys, True),
        "agent requests": NativeTarget("requests.cc", (AGENT / "requests.cc",), seeds.requests),
        "agent tracker": NativeTarget(
            "tracker.cc", (AGENT / "tracker.cc", AGENT / "net.cc"), seeds.tracker_answers
        ),
        "agent documents": NativeTarget(
            "documents.cc",
            tuple(
                AGENT / f"{name}.cc"
                for name in ("json_reader", "signed_documents", "ed25519", "sha2")
            ),
            seeds.registry_documents,
        ),
        "app pictures": NativeTarget(
            "pictures.c", (APP / "picture.c", APP / "decode.c"), seeds.plain_pictures
        ),
        "firmware frame": NativeTarget("frame.c", (FIRMWARE / "frame.c",), seeds.serial_frames),
        "firmware serve": NativeTarget(
            "serve.c", (FIRMWARE / "serve.c", FIRMWARE / "frame.c"), seeds.firmware_requests
        ),
    }


@dataclass(frozen=True)
class _Compilers:
    c: str
    cpp: str
    has_fuzzer: bool


@cache
def _compilers() -> _Compilers | None:
    """Clang with libFuzzer, or any compiler with the sanitizers."""
    for c, cpp, extra in (("clang", "clang++", "-fsanitize=fuzzer"), ("gcc", "g++", "")):
        if shutil.which(c) and shutil.which(cpp) and _works(cpp, extra):
            return _Compilers(c, cpp, bool(extra))
    return None


def _works(compiler: str, extra: str) -> bool:
    entry = "int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }"
    text = f'extern "C" {entry}' if extra else "int main() { return 0; }"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "x.cc"
        source.write_text(text)
        command = [compiler, *_SANITIZERS, *([extra] if extra else []), source, "-o", f"{folder}/x"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def build_native(target: NativeTarget, folder: Path) -> Path:
    """Compile a harness with what it tries."""
    found = _compilers()
    assert found is not None
    is_c = target.harness.endswith(".c")
    more = ["-fsanitize=fuzzer"] if found.has_fuzzer else []
    objects = []
    sources = [HERE / target.harness, *target.sources]
    for source in [*sources, *([] if found.has_fuzzer else [HERE / "plain.c"])]:
        compiler = found.c if source.suffix == ".c" else found.cpp
        language = "-std=c99" if source.suffix == ".c" else "-std=c++17"
        made = folder / f"{source.parent.name}-{source.stem}.o"
        flags = [*_SANITIZERS, *(f"{flag}-no-link" for flag in more), language, "-D_GNU_SOURCE"]
        include = [
            f"-I{HERE}",
            f"-I{AGENT}",
            f"-I{FIRMWARE}",
            f"-I{APP}",
            "-isystem",
            str(ffi_headers()),
        ]
        _run([compiler, *flags, *include, "-c", str(source), "-o", str(made)])
        objects.append(str(made))
    program = folder / "harness"
    runtime = package_folder("tvm_ffi") / "lib"
    linked = ["-L", str(runtime), "-ltvm_ffi", f"-Wl,-rpath,{runtime}"]
    tail = ["-pthread", "-lm", *(linked if target.links_runtime else [])]
    linker = found.c if is_c else found.cpp
    _run([linker, *_SANITIZERS, *more, *objects, *tail, "-o", str(program)])
    return program


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-4000:]}")


def run_native(name: str, effort: Effort, seed: int) -> int:
    """Try one target; return the number of faults, at most one."""
    target = native_targets()[name]
    known = [*target.seeds(), *crashes_of(name).values()]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        folder = Path(scratch)
        program = build_native(target, folder)
        corpus = folder / "corpus"
        corpus.mkdir()
        found = _compilers()
        if found is not None and found.has_fuzzer:
            for number, data in enumerate(known):
                (corpus / f"seed-{number}").write_bytes(data)
            return _with_fuzzer(name, program, folder, effort, seed)
        chance = Random(f"{seed} {name}")
        for number in range(_AT_ONCE):
            data = known[number] if number < len(known) else damaged(known, chance)
            (corpus / f"{number:06}").write_bytes(data)
        return _without_fuzzer(name, program, sorted(corpus.iterdir()))


def replay_native(name: str, folder: Path) -> None:
    """Run a target on whole data and on what it once fell over; RuntimeError where it fails."""
    target = native_targets()[name]
    program = build_native(target, folder)
    files = []
    for number, data in enumerate([*target.seeds(), *crashes_of(name).values()]):
        files.append(folder / f"data-{number}")
        files[-1].write_bytes(data)
    _run([str(program), *map(str, files)])


def _with_fuzzer(name: str, program: Path, folder: Path, effort: Effort, seed: int) -> int:
    options = {
        **_limit(effort),
        "timeout": _SECONDS_FOR_ONE,
        "rss_limit_mb": 2048,
        "max_len": 1 << 16,
        "seed": seed % (1 << 31) or 1,
        "artifact_prefix": f"{folder}/fault-",
        "print_final_stats": 1,
    }
    command = [str(program), *(f"-{key}={value}" for key, value in options.items())]
    done = subprocess.run(
        [*command, str(folder / "corpus")], capture_output=True, text=True, errors="replace",
        check=False,
    )  # fmt: skip
    faults = sorted(folder.glob("fault-*"))
    tried = [line.split()[-1] for line in done.stderr.splitlines() if "executed_units" in line]
    if done.returncode == 0:
        print(f"{name:16} {tried[0] if tried else '?':>7} tries, 0 faults", flush=True)
        return 0
    return _told(name, faults[0].read_bytes() if faults else b"", done.stderr)


def _limit(effort: Effort) -> dict[str, int]:
    if effort.tries is None:
        return {"max_total_time": max(1, round(effort.seconds))}
    return {"runs": effort.tries * _NATIVE_TRIES}


def _without_fuzzer(name: str, program: Path, files: Sequence[Path]) -> int:
    command = [str(program), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        print(f"{name:16} {len(files):7} tries, 0 faults, without libFuzzer", flush=True)
        return 0
    tried = [line for line in done.stderr.splitlines() if line.startswith(str(files[0].parent))]
    return _told(name, Path(tried[-1]).read_bytes() if tried else b"", done.stderr)


def _told(name: str, data: bytes, said: str) -> int:
    summary = [line for line in said.splitlines() if "ERROR:" in line or "runtime error" in line]
    print(f"FAULT in {name}: {summary[0] if summary else said[-300:]}")
    print(f"  kept as {keep_crash(name, data)}", flush=True)
    return 1
