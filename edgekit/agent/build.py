"""Builds the agent for a board: our source, compiled by the board's own compiler.

The agent runs programs without a runtime. A second program runs models on TVM's virtual machine and
serves TVM's RPC: it goes to a board with TVM's libraries, where they are needed. A build runs once
for each compiler, architecture and version, and stays in the cache.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.decode import decode_json
from edgekit.base.events import SILENT, Events
from edgekit.base.files import (
    copy_tree,
    exclusive_lock,
    replace_directory,
    scratch_directory,
    sha256_bytes,
    sha256_file,
    storage_errors,
)
from edgekit.base.paths import PACKAGE, cache_dir
from edgekit.base.tvm_compat import TVM_FFI_VERSION, TVM_VERSION
from edgekit.cross.runtime import ffi_headers, runtime_libraries
from edgekit.cross.toolchain import Compiler, find_cxx_compiler
from edgekit.cross.tools import run_tool
from edgekit.profiles.toolchain import Toolchain
from edgekit.version import __version__

AGENT = "edgekit-agent"
AGENT_WITH_RUNTIME = "edgekit-agent-tvm"
_SUMS = "sums.json"
_SOURCE = Path(__file__).parent / "src"
INTERFACE = PACKAGE / "aot" / "native" / "source" / "edgekit.h"
"""The C interface of programs."""
_COMPILE = (
    *("-fvisibility=hidden", "-std=c++17", "-O2", "-fPIE", "-pie"),
    *("-ffunction-sections", "-fdata-sections"),
    *("-Wl,--gc-sections", "-Wl,--strip-all", "-Wl,--build-id=none", "-Wl,-z,relro,-z,now"),
)


@dataclass(frozen=True)
class _Program:
    name: str
    lacks: frozenset[str]
    """The sources that are the other program's."""
    in_words: str = "the agent"
    with_tvm: bool = False
    # No symbol of TVM's headers is exported: TVM's libraries would take them from the program,
    # which may use another C++ library.
    flags: tuple[str, ...] = ()
    link: tuple[str, ...] = ("-ldl", "-pthread")

    @property
    def sources(self) -> list[str]:
        return sorted(file.name for file in _SOURCE.glob("*.cc") if file.stem not in self.lacks)


_PLAIN = _Program(
    AGENT,
    frozenset({"machine_model", "runtime_commands", "serve", "session", "tracker"}),
)
_WITH_RUNTIME = _Program(
    AGENT_WITH_RUNTIME,
    frozenset(
        {"attend", "info", "plain_commands", "program_model", "requests", "versions"}
        | {"compare", "download", "ed25519", "follow", "installation", "json_reader"}
        | {"sha2", "signed_documents"}
    ),
    in_words="the agent with TVM's runtime",
    with_tvm=True,
    flags=("-DTVM_FFI_DLL=", "-DTVM_FFI_DLL_EXPORT="),
    link=(
        *("-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", "-ltvm_runtime", "-ltvm_ffi"),
        *("-ldl", "-pthread"),
    ),
)


@dataclass(frozen=True)
class AgentFile:
    path: Path
    sha256: str
    size: int
    executable: bool


@dataclass(frozen=True)
class Agent:
    """The files that a board needs, in one folder."""

    files: tuple[AgentFile, ...]
    digest: str
    """Digest of all files."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def program(self) -> Path:
        return next(file.path for file in self.files if file.executable)


def build_agent(toolchain: Toolchain, arch: str, *, events: Events = SILENT) -> Agent:
    """Return the agent for boards of an architecture, from the cache if it is complete."""
    return _built(_PLAIN, toolchain, arch, {}, events)


def build_runtime(toolchain: Toolchain, arch: str, *, events: Events = SILENT) -> Agent:
    """Return the program with TVM's runtime, and TVM's libraries."""
    return _built(_WITH_RUNTIME, toolchain, arch, runtime_libraries(arch, events), events)


def _built(
    program: _Program,
    toolchain: Toolchain,
    arch: str,
    libraries: dict[str, Path],
    events: Events,
) -> Agent:
    compiler = find_cxx_compiler(toolchain)
    final = cache_dir() / "agents" / _key(program, toolchain, compiler, libraries)
    with storage_errors("keep the agent", final):
        final.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(final.with_suffix(".lock")):
            agent = _read(final)
            if agent is not None:
                return agent
            with (
                events.stage(
                    f"compile {program.in_words} for {arch}", len(program.sources)
                ) as stage,
                scratch_directory(final.parent) as scratch,
                replace_directory(final) as folder,
                stage.watching(lambda: len(list(scratch.glob("*.o")))),
            ):
                _compile(program, toolchain, compiler, libraries, scratch)
                shutil.copy2(scratch / program.name, folder)
                for name, library in libraries.items():
                    shutil.copyfile(library, folder / name)
                sums = {file.name: sha256_file(file) for file in sorted(folder.iterdir())}
                (folder / _SUMS).write_text(json.dumps(sums), encoding="ascii")
            agent = _read(final)
    assert agent is not None
    return agent


def _key(
    program: _Program, toolchain: Toolchain, compiler: Compiler, libraries: dict[str, Path]
) -> str:
    ingredients = [
        __version__, TVM_VERSION, TVM_FFI_VERSION, compiler.banner, toolchain.triple,
        toolchain.sysroot or "", *toolchain.compile_flags, *toolchain.link_flags, *_COMPILE,
        program.name, *program.flags, *program.link,
        *(f"{name} {sha256_file(path)}" for name, path in sorted(libraries.items())),
        *(f"{file.name} {sha256_file(file)}" for file in sorted(_SOURCE.iterdir())),
        sha256_file(INTERFACE),
    ]  # fmt: skip
    return sha256_bytes("\n".join(ingredients).encode())


def _read(folder: Path) -> Agent | None:
    """Return a finished agent whose files are all unchanged; None if there is none."""
    try:
        sums = decode_json(dict[str, str], (folder / _SUMS).read_bytes())
        whole = all(sha256_file(folder / name) == digest for name, digest in sums.items())
    except (OSError, ValueError):
        return None
    if not whole:
        return None
    files = tuple(
        AgentFile(folder / name, digest, (folder / name).stat().st_size, name.startswith(AGENT))
        for name, digest in sums.items()
    )
    return Agent(files, sha256_bytes(json.dumps(sums).encode()))


def _compile(
    program: _Program,
    toolchain: Toolchain,
    compiler: Compiler,
    libraries: dict[str, Path],
    scratch: Path,
) -> None:
    """Compile in a folder with relative names only, so that no path of this machine gets in."""
    copy_tree(_SOURCE, scratch / "src")
    shutil.copyfile(INTERFACE, scratch / "src" / INTERFACE.name)
    for name, library in libraries.items():
        shutil.copyfile(library, scratch / name)
    sysroot = (f"--sysroot={toolchain.sysroot}",) if toolchain.sysroot else ()
    headers: tuple[str, ...] = ()
    if program.with_tvm:
        headers = (
            *("-isystem", str(ffi_headers())),
            f"-ffile-prefix-map={ffi_headers()}=tvm_ffi",
        )
    run_tool(
        (
            *compiler.command,
            *sysroot,
            *toolchain.compile_flags,
            *_COMPILE,
            *program.flags,
            f'-DEDGEKIT_AGENT_VERSION="{__version__}"',
            f'-DEDGEKIT_TVM_VERSION="{TVM_VERSION}"',
            f'-DEDGEKIT_TVM_FFI_VERSION="{TVM_FFI_VERSION}"',
            *headers,
            *(f"src/{name}" for name in program.sources),
            *("-o", program.name, "-L", "."),
            *toolchain.link_flags,
            *program.link,
        ),
        folder=scratch,
        doing="compile the agent",
    )
