"""Where TensorRT's headers are looked for, and what is said where there are none."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from edgekit.backends.plan import options_of
from edgekit.backends.tensorrt import BACKEND
from edgekit.backends.tensorrt.codegen import settings_of
from edgekit.backends.tensorrt.headers import find_headers, library_of
from edgekit.base.errors import MissingToolError, ProfileError
from edgekit.profiles.board import Board, load_board
from edgekit.profiles.toolchain import Toolchain, load_toolchain

FILES = ("NvInfer.h", "NvOnnxParser.h", "cuda_runtime_api.h")
VERSION = """\
#define NV_TENSORRT_MAJOR 8 //!< TensorRT major version.
#define NV_TENSORRT_MINOR 5
#define NV_TENSORRT_PATCH 3
"""
NEWER = """\
#define TRT_MAJOR_ENTERPRISE 10
#define TRT_MINOR_ENTERPRISE 13
#define TRT_PATCH_ENTERPRISE 3
#define NV_TENSORRT_MAJOR TRT_MAJOR_ENTERPRISE //!< TensorRT major version.
"""


@pytest.fixture
def jetson() -> Board:
    return load_board("jetson-orin")


@pytest.fixture
def toolchain(jetson: Board) -> Toolchain:
    return dataclasses.replace(load_toolchain(jetson.toolchain), sysroot=None)


def headers(folder: Path, version: str = VERSION) -> Path:
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text(f"// {name}\n")
    (folder / "NvInferVersion.h").write_text(version)
    return folder


@pytest.mark.parametrize(("text", "version"), [(VERSION, "8.5.3"), (NEWER, "10.13.3")])
def test_the_variable_names_folders(
    text: str,
    version: str,
    jetson: Board,
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = headers(tmp_path / "include", text)
    cuda = tmp_path / "cuda"
    cuda.mkdir()
    (folder / FILES[2]).rename(cuda / FILES[2])
    monkeypatch.setenv("TENSORRT_INCLUDE", f"{folder}{os.pathsep}{cuda}")

    found = library_of(jetson, toolchain)

    runner = BACKEND.runner(jetson, toolchain)
    assert found.version == runner.version == version
    assert set(runner.include) == {folder, cuda}
    assert found.needs[0] == f"libnvinfer.so.{version.partition('.')[0]}"


@pytest.mark.parametrize("place", ["usr/include/aarch64-linux-gnu", "usr/include"])
def test_a_sysroot_has_them_where_jetpack_puts_them(
    place: str,
    jetson: Board,
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TENSORRT_INCLUDE", raising=False)
    folder = headers(tmp_path / place)

    found = find_headers(jetson, dataclasses.replace(toolchain, sysroot=str(tmp_path)))

    assert found is not None
    assert found.folders == (folder,)


def test_a_board_far_away_has_them_where_they_are_not_here(
    jetson: Board, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENSORRT_INCLUDE", raising=False)
    without = dataclasses.replace(toolchain, sysroot=str(tmp_path))

    runner = BACKEND.runner(jetson, without)

    assert find_headers(jetson, without) is None
    assert (runner.include, runner.version) == ((), "")
    assert "nvinfer1" in runner.source
    with pytest.raises(MissingToolError, match=r"NvInfer\.h"):
        find_headers(load_board("local"), without)


def test_other_headers_are_another_build(
    jetson: Board, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identities = set()
    for name, text in (("one", VERSION), ("two", NEWER)):
        monkeypatch.setenv("TENSORRT_INCLUDE", str(headers(tmp_path / name, text)))
        identities.add(BACKEND.identity(jetson, toolchain))

    assert len(identities) == 2


@pytest.mark.parametrize("missing", FILES)
def test_an_error_says_which_header_is_missing_and_what_to_set(
    missing: str,
    jetson: Board,
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = headers(tmp_path / "include")
    (folder / missing).unlink()
    monkeypatch.setenv("TENSORRT_INCLUDE", str(folder))

    with pytest.raises(MissingToolError, match=missing) as raised:
        BACKEND.identity(jetson, toolchain)

    assert "jetson-orin" in raised.value.message
    assert "TENSORRT_INCLUDE" in raised.value.hint
    assert "sysroot" in raised.value.hint


def test_options_become_what_the_runner_reads() -> None:
    assert settings_of(options_of(BACKEND, {})) == ('"fp32"', "268435456ll", "-1", "3")
    given = {"precision": "fp16", "dla_core": 1, "builder_level": 5, "workspace_mb": 1}
    assert settings_of(options_of(BACKEND, given)) == ('"fp16"', "1048576ll", "1", "5")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dla_core": 0}, "fp32"),
        ({"dla_core": 0, "precision": "tf32"}, "tf32"),
        ({"workspace_mb": 0}, "workspace_mb"),
    ],
)
def test_options_that_can_not_be_are_refused(given: dict[str, int | str], said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        settings_of(options_of(BACKEND, given))
