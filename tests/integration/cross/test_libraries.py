"""Third-party libraries are built from what is pinned, once, whole or not at all."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.examples import first_of
from support.needs import needs
from support.rpc_lab import eventually
from support.toy_library import write_toy

from edgekit.base.errors import BuildError, MissingToolError
from edgekit.base.events import Event, Events, StageProgress, StageStarted
from edgekit.building.cached import cached_entries, prune_cached
from edgekit.cross.cmake import toolchain_file
from edgekit.cross.sources import (
    BuiltLibrary,
    build_library,
    find_library,
    library_identity,
    load_recipe,
)
from edgekit.cross.sources.library import libraries_cache
from edgekit.cross.toolchain import find_cxx_compiler, which
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain

PATIENCE = 600.0


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("EDGEKIT_SOURCES", str(tmp_path / "toy"))


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "toy")


def built(
    recipe: Path, board: str = "local", toolchain: str = ""
) -> tuple[BuiltLibrary, list[str]]:
    """The library, and what was done for it."""
    stages: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted):
            stages.append(event.title)

    profile = load_board(board)
    tools = load_toolchain(toolchain or profile.toolchain)
    return build_library(load_recipe(recipe), profile, tools, Events(listen)), stages


def is_there(recipe: Path) -> bool:
    board = load_board("local")
    return find_library(load_recipe(recipe), board, load_toolchain("host")) is not None


def run_with(library: BuiltLibrary, folder: Path) -> str:
    """What a program that uses the toy says."""
    source, program = folder / "main.cc", folder / "main"
    source.write_text(
        '#include <cstdio>\n#include "toy.h"\nint main() { std::printf("%d", toy(20)); }\n'
    )
    compiler = find_cxx_compiler(load_toolchain("host"))
    subprocess.run(
        [
            *compiler.command,
            *(f"-I{path}" for path in library.include),
            str(source),
            *library.link,
            *("-o", str(program)),
        ],
        check=True,
    )
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def test_a_library_is_built_once_and_works(toy: Path, tmp_path: Path) -> None:
    library, stages = built(toy)

    arch = os.uname().machine
    assert stages == [
        "fetch toy-1.0.tar.gz",
        f"configure toy for {arch}",
        f"compile toy for {arch}",
    ]
    assert run_with(library, tmp_path) == "21"
    assert (library.folder / "LICENSE").read_text() == "do as you like\n"
    assert not library.from_cache

    again, stages = built(toy)
    assert stages == []
    assert again.from_cache
    assert (again.digest, again.link) == (library.digest, library.link)


def test_the_same_source_gives_the_same_bytes_with_nothing_of_this_machine(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Path(built(toy)[0].link[0]).read_bytes()
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "elsewhere"))
    second = Path(built(toy)[0].link[0]).read_bytes()

    assert first == second
    assert str(tmp_path).encode() not in first


def test_the_identity_is_known_before_the_build_and_follows_what_decides_it(
    toy: Path, tmp_path: Path
) -> None:
    board, host = load_board("local"), load_toolchain("host")
    identity = library_identity(load_recipe(toy), board, host)
    twice = load_recipe(write_toy(tmp_path / "twice", twice="ON"))
    pi = load_board("rpi4")

    assert built(toy)[0].digest == identity
    assert library_identity(twice, board, host) != identity
    assert library_identity(load_recipe(toy), pi, load_toolchain(pi.toolchain)) != identity


def test_options_reach_the_build(tmp_path: Path) -> None:
    assert run_with(built(write_toy(tmp_path / "toy", twice="ON"))[0], tmp_path) == "42"


@needs("g++-aarch64")
def test_a_board_of_another_architecture_gets_its_own(toy: Path) -> None:
    library, _ = built(toy, "rpi4")

    listing = subprocess.run(
        ["aarch64-linux-gnu-objdump", "-f", library.link[0]],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "elf64-littleaarch64" in listing


def test_progress_is_counted_in_the_builds_own_steps(toy: Path) -> None:
    progress: list[StageProgress] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageProgress):
            progress.append(event)

    build_library(load_recipe(toy), load_board("local"), load_toolchain("host"), Events(listen))

    compiled = [event for event in progress if event.title.startswith("compile")]
    assert {event.total for event in compiled} == {3}
    assert compiled[-1].done == 3
    fetched = [event for event in progress if event.title.startswith("fetch")]
    (archive,) = load_recipe(toy).archives
    size = next(toy.parent.rglob(archive.file)).stat().st_size
    assert {event.total for event in fetched} == {size}  # from the answer's header
    assert fetched[-1].done == size


def test_a_damaged_library_is_built_again(toy: Path, tmp_path: Path) -> None:
    library, _ = built(toy)
    Path(library.link[0]).write_bytes(b"damaged")

    assert not is_there(toy)
    mended, stages = built(toy)
    assert stages[-1].startswith("compile")
    assert run_with(mended, tmp_path) == "21"


def test_other_bytes_than_the_pinned_ones_are_refused(toy: Path) -> None:
    archive = toy.parent / "toy-1.0.tar.gz"
    archive.write_bytes(archive.read_bytes() + b"\0")

    with pytest.raises(BuildError, match="is not the pinned file") as refused:
        built(toy)

    assert any("pinned" in line for line in refused.value.details)
    assert not is_there(toy)
    assert cached_entries() == ()


def test_what_is_damaged_in_the_cache_is_fetched_again(toy: Path) -> None:
    built(toy)
    cache = libraries_cache()
    (source,) = (entry for entry in cache.entries() if entry.kind == "source")
    (cache.content(source.key) / "toy-1.0.tar.gz").write_bytes(b"damaged")
    (library,) = (entry for entry in cache.entries() if entry.kind == "library")
    cache.forget(library.key)

    assert built(toy)[1][0] == "fetch toy-1.0.tar.gz"


def test_a_compilers_complaint_is_shown_and_the_whole_log_named(tmp_path: Path) -> None:
    recipe = write_toy(tmp_path / "toy", {"more.cc": "int more(int) { return sensible; }\n"})

    with pytest.raises(BuildError, match="could not compile toy") as failed:
        built(recipe)

    assert any("'sensible' was not declared" in line for line in failed.value.details)
    assert failed.value.hint is not None
    log = Path(failed.value.hint.rpartition(" ")[2])
    assert "sensible" in log.read_text()
    assert not is_there(recipe)


def test_a_flag_that_the_compiler_does_not_know_is_told_by_cmake(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = tmp_path / "toolchains"
    profiles.mkdir()
    host = load_toolchain("host").origin.read_text()
    wrong = host.replace('name = "host"', 'name = "wrong"').replace(
        "compile_flags = []", 'compile_flags = ["-fno-such-flag-at-all=1"]'
    )
    (profiles / "wrong.toml").write_text(wrong)
    monkeypatch.setenv("EDGEKIT_TOOLCHAIN_PATH", str(profiles))

    with pytest.raises(BuildError, match="could not configure toy") as failed:
        built(toy, toolchain="wrong")

    assert any("no-such-flag" in line for line in failed.value.details)


def test_the_users_own_compiler_flags_do_not_get_behind_the_caches_back(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXXFLAGS", "-DTOY_FACTOR=3")

    assert run_with(built(toy)[0], tmp_path) == "21"


def test_a_missing_cmake_is_named_with_both_ways_to_get_it(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    for tool in ("cc", "c++", "ar", "strip"):
        found = which(tool)
        assert found is not None
        (only / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(only))
    monkeypatch.setattr(sys, "executable", str(only / "python"))

    with pytest.raises(MissingToolError, match="cmake and ninja") as missing:
        built(toy)

    assert missing.value.hint is not None
    assert "pip install cmake ninja" in missing.value.hint
    assert "apt-get install -y cmake ninja-build" in missing.value.hint


SLOW = """\
cmake_minimum_required(VERSION 3.16)
project(toy NONE)
add_custom_target(slow ALL COMMAND ${CMAKE_COMMAND} -E touch ${MARK} COMMAND sleep ${SECONDS})
"""
PROGRAM = """\
import sys
from pathlib import Path
from edgekit.profiles.board import load_board
from edgekit.cross.sources import build_library, load_recipe
from edgekit.profiles.toolchain import load_toolchain
build_library(load_recipe(Path(sys.argv[1])), load_board("local"), load_toolchain("host"))
"""


def running(*command: str) -> bool:
    wanted = "\0".join(command).encode() + b"\0"
    found = False
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found = found or process.read_bytes() == wanted
    return found


@pytest.mark.parametrize("how", first_of(signal.SIGKILL, signal.SIGINT))
def test_a_build_that_is_ended_in_the_middle_leaves_no_library_and_is_made_good(
    tmp_path: Path, how: signal.Signals
) -> None:
    mark = tmp_path / "compiling"
    seconds = f"600.{os.getpid()}"  # no other test's sleep
    slow = SLOW.replace("${MARK}", str(mark)).replace("${SECONDS}", seconds)
    recipe = write_toy(tmp_path / "toy", {"CMakeLists.txt": slow})
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(recipe)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + PATIENCE
        while not mark.exists():
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.send_signal(how)
        assert child.wait(PATIENCE) != 0
    finally:
        child.kill()
        child.wait()

    eventually(lambda: not running("sleep", seconds))
    assert not is_there(recipe)
    root = libraries_cache().root
    if how == signal.SIGINT:
        assert not any((root / "work").iterdir())
    good = write_toy(tmp_path / "toy")
    assert run_with(built(good)[0], tmp_path) == "21"
    prune_cached(older_than=None, max_bytes=None)
    assert [path.name for path in (root / "work").iterdir()] == []


@contextmanager
def served(folder: Path, content_type: str) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, directory=str(folder), **options)  # type: ignore[arg-type]

        def do_GET(self) -> None:
            if self.headers.get("Authorization") == "Basic dXNlcjpzZWNyZXQ=":  # user:secret
                super().do_GET()
            else:
                self.send_error(401)

        def guess_type(self, path: object) -> str:
            return content_type if str(path).endswith("index.html") else "application/gzip"

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://user:secret@127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("form", ["html", "json"])
def test_the_source_comes_from_the_index_that_pip_is_configured_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    recipe = write_toy(tmp_path / "toy")
    site = tmp_path / "site"
    (site / "simple" / "toy").mkdir(parents=True)
    (site / "files").mkdir()
    (tmp_path / "toy" / "toy-1.0.tar.gz").rename(site / "files" / "toy-1.0.tar.gz")
    kinds = {"html": "text/html", "json": "application/vnd.pypi.simple.v1+json"}
    with served(site, kinds[form]) as index:
        root = index.replace("user:secret@", "").removesuffix("/simple")
        link = {"filename": "toy-1.0.tar.gz", "url": f"{root}/files/toy-1.0.tar.gz"}
        page = {
            "html": '<a href="../../files/toy-1.0.tar.gz#sha256=00">toy-1.0.tar.gz</a>',
            "json": json.dumps({"files": [link]}),
        }
        (site / "simple" / "toy" / "index.html").write_text(page[form])
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", index)
        library, _ = built(recipe)

    assert run_with(library, tmp_path) == "21"


def test_a_machine_without_apt_is_told_how_else_to_come_by_debians_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write_toy(tmp_path / "toy")
    (tmp_path / "toy" / "toy-1.0.tar.gz").unlink()
    debian = 'from = "debian"\nrelease = "bookworm"'
    recipe.write_text(recipe.read_text().replace('from = "pypi"', debian))
    only = tmp_path / "bin"
    only.mkdir()
    for tool in ("cc", "c++", "ar", "cmake", "ninja"):
        found = which(tool)
        assert found is not None
        (only / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(only))
    monkeypatch.setattr("edgekit.twin.tools._SYSTEM_FOLDERS", ())

    with pytest.raises(MissingToolError, match="no apt") as missing:
        built(recipe)

    assert "EDGEKIT_SOURCES" in str(missing.value.hint)


def test_an_index_without_the_file_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write_toy(tmp_path / "toy")
    (tmp_path / "toy" / "toy-1.0.tar.gz").unlink()
    (tmp_path / "simple" / "toy").mkdir(parents=True)
    (tmp_path / "simple" / "toy" / "index.html").write_text("<a href='toy-0.9.tar.gz'>old</a>")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)

    with pytest.raises(BuildError, match=r"the package index has no toy-1\.0\.tar\.gz"):
        built(recipe)


def test_a_library_of_the_users_own_is_taken_as_it_is(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, _ = built(toy)
    own = tmp_path / "own"
    library.folder.rename(own)
    monkeypatch.setenv("EDGEKIT_LIBRARY_TOY", str(own))

    taken, stages = built(toy)
    assert stages == []
    assert run_with(taken, tmp_path) == "21"
    assert taken.digest != library.digest

    (own / "lib" / "libtoy.a").unlink()
    with pytest.raises(BuildError, match="which is no toy"):
        built(toy)


def test_libraries_and_their_sources_are_listed_and_pruned(toy: Path) -> None:
    built(toy)
    assert {entry.kind for entry in cached_entries()} == {"library", "source"}

    prune_cached(older_than=None, max_bytes=0)
    assert cached_entries() == ()
    assert not is_there(toy)


def test_cmake_takes_a_toolchain_file_made_for_another_machine(tmp_path: Path) -> None:
    """As an export writes it: tools by their names, found on PATH."""
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(p CXX)\n"
        'file(WRITE "${CMAKE_BINARY_DIR}/said" "${CMAKE_SYSTEM_PROCESSOR} ${CMAKE_CXX_FLAGS}")\n'
    )
    text = toolchain_file(load_toolchain("host"), ("-O1",), host_paths=False)
    (tmp_path / "toolchain.cmake").write_text(text)

    subprocess.run(
        ["cmake", "-S", ".", "-B", "b", "-DCMAKE_TOOLCHAIN_FILE=../toolchain.cmake"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )

    assert (tmp_path / "b" / "said").read_text() == f"{os.uname().machine} -O1"
    assert "/usr" not in text
