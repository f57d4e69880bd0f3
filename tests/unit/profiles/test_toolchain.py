from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import TOOLCHAIN, write_profile

from edgekit.base.errors import MissingToolError, ProfileError
from edgekit.base.paths import built_in_profiles
from edgekit.cross.toolchain import find_compiler, find_cxx_compiler, older, version_in, which
from edgekit.profiles.reader import load_profile
from edgekit.profiles.toolchain import (
    Install,
    check_toolchain,
    load_toolchain,
    parse_toolchain,
    pip_command,
    toolchain_names,
)

VALUES = {"triple": "aarch64-linux-gnu", "cc": "gcc", "cxx": "g++", "minimum_version": "10.2"}


def _write(folder: Path, **values: str) -> Path:
    return write_profile(folder, "mine", TOOLCHAIN, **{**VALUES, **values})


def _program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", ["host", "aarch64-linux-gnu", "arm-none-eabi"])
def test_built_in_toolchains_are_sound(name: str) -> None:
    assert name in toolchain_names()
    assert check_toolchain(built_in_profiles("toolchains") / f"{name}.toml") == ()
    toolchain = load_toolchain(name)
    assert toolchain.install.debian
    assert "apt-get install -y" in toolchain.install.command()


def test_the_hosts_triple_is_this_machines() -> None:
    assert load_toolchain("host").triple == f"{platform.machine()}-linux-gnu"


def test_this_machines_compilers_are_found_with_their_versions() -> None:
    toolchain = load_toolchain("host")
    for compiler in (find_compiler(toolchain), find_cxx_compiler(toolchain)):
        assert compiler.path.is_absolute()
        assert compiler.version in compiler.banner
        assert compiler.command == (str(compiler.path),)
        assert not older(compiler.version, toolchain.minimum_version)


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ("gcc (Debian 12.2.0-14+deb12u1) 12.2.0", "12.2.0"),
        ("arm-none-eabi-gcc (15:12.2.rel1-1) 12.2.1 20221205", "12.2.1"),
        ("arm-none-eabi-gcc (Arm GNU Toolchain 13.2.rel1 (Build arm-13.7)) 13.2.1 20231009",
         "13.2.1"),
        ("aarch64-linux-gnu-gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", "11.4.0"),
        ("Debian clang version 14.0.6", "14.0.6"),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)", "18.1.3"),
        ("clang version 19.1.7 (https://example.com/llvm 0123abcd)", "19.1.7"),
        ("cc: error: no input files", None),
        ("", None),
    ],
)  # fmt: skip
def test_versions_are_read_out_of_what_compilers_say(banner: str, version: str | None) -> None:
    assert version_in(banner) == version


@pytest.mark.parametrize(
    ("version", "minimum", "is_older"),
    [
        ("9.4", "10", True),
        ("10", "9.4", False),
        ("12.2.0", "12.2", False),
        ("12.1.9", "12.2", True),
    ],
)
def test_versions_are_compared_number_by_number(version: str, minimum: str, is_older: bool) -> None:
    assert older(version, minimum) is is_older


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_no_version_is_older_than_itself_with_zeros(numbers: list[int]) -> None:
    version = ".".join(map(str, numbers))
    assert not older(version, version + ".0")
    assert not older(version + ".0", version)


@given(st.text())
def test_any_banner_has_a_version_that_can_be_compared_or_none(banner: str) -> None:
    version = version_in(banner)
    assert version is None or older(version, "10000")


def test_a_missing_compiler_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    path = _write(tmp_path, cc="no-such-compiler")
    toolchain = load_profile(path, "toolchains", parse_toolchain)
    with pytest.raises(MissingToolError, match="no-such-compiler") as caught:
        find_compiler(toolchain)
    assert "apt-get install -y some-compiler" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'cc (Debian 9.9.9-1) 9.4.0'", "is version 9.4.0"),
        ("echo hello", "does not say its version"),
        ("exit 3", "does not run"),
        ("kill -SEGV $$", "does not run"),
    ],
)
def test_a_compiler_that_is_old_or_broken_is_refused(
    tmp_path: Path, script: str, said: str
) -> None:
    program = _program(tmp_path, "some-cc", script)
    path = _write(tmp_path, cc=str(program))
    with pytest.raises(MissingToolError, match=said):
        find_compiler(load_profile(path, "toolchains", parse_toolchain))


def test_a_compiler_replaced_by_a_newer_one_is_asked_again(tmp_path: Path) -> None:
    program = _program(tmp_path, "some-cc", "echo cc 11.1.0")
    toolchain = load_profile(_write(tmp_path, cc=str(program)), "toolchains", parse_toolchain)
    assert find_compiler(toolchain).version == "11.1.0"
    _program(tmp_path, "some-cc", "echo cc version 12.10.0")
    assert find_compiler(toolchain).version == "12.10.0"


def test_a_compiler_behind_a_subcommand_keeps_it(tmp_path: Path) -> None:
    program = _program(tmp_path, "driver", 'test "$1" = cc && echo clang version 19.1.0')
    toolchain = load_profile(_write(tmp_path, cc=f"{program} cc"), "toolchains", parse_toolchain)
    assert find_compiler(toolchain).command == (str(program), "cc")


def test_programs_beside_python_are_found_without_activating_anything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert which(Path(sys.executable).name) == Path(sys.executable)
    assert which("no-such-program") is None


def test_an_empty_entry_of_path_does_not_mean_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _program(tmp_path, "evil", "true")
    monkeypatch.chdir(tmp_path)
    for path in ("", ":", f":{tmp_path}/nowhere:"):
        monkeypatch.setenv("PATH", path)
        assert which("evil") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cc", "./evil"),
        ("cc", "bin/evil"),
        ("cc", "/usr/../evil"),
        ("cc", "gcc; rm -rf /"),
        ("cc", "$(evil)"),
        ("cxx", ""),
        ("triple", "aarch64"),
        ("triple", "a b-c"),
        ("minimum_version", "twelve"),
        ("minimum_version", "1.2.3.4.5"),
    ],
)
def test_values_that_could_do_harm_or_mean_nothing_are_refused(
    tmp_path: Path, key: str, value: str
) -> None:
    path = _write(tmp_path, **{key: value})
    problems = check_toolchain(path)
    assert [p.key.rpartition(".")[2] for p in problems] == [key]


def test_flags_are_single_words_that_begin_with_a_dash(tmp_path: Path) -> None:
    path = _write(tmp_path)
    path.write_text(
        path.read_text().replace("link_flags = []", 'link_flags = ["-Wl,--gc-sections", "x y"]')
    )
    (problem,) = check_toolchain(path)
    assert (problem.key, problem.found) == ("link_flags", '"x y"')


def test_a_sysroot_is_an_absolute_path(tmp_path: Path) -> None:
    for sysroot, sound in (("/opt/sysroots/rpi", True), ("sysroot", False), ("/a/../b", False)):
        path = _write(tmp_path)
        path.write_text(f'sysroot = "{sysroot}"\n' + path.read_text())
        assert (check_toolchain(path) == ()) is sound


def test_a_toolchain_without_packages_says_in_words_where_it_comes_from() -> None:
    assert Install((), (), "from the vendor").command() == "from the vendor"


def test_pip_commands_can_be_pasted_into_a_shell() -> None:
    assert pip_command("onnx>=1.17", "numpy").endswith(" -m pip install 'onnx>=1.17' numpy")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_toolchain_or_a_profile_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "mine.toml"
    path.write_bytes(data)
    with pytest.raises(ProfileError):
        load_profile(path, "toolchains", parse_toolchain)


def test_sudo_is_asked_for_only_where_it_is_needed() -> None:
    command = Install(("gcc",), (), "").command()
    assert command.startswith("sudo ") is (os.geteuid() != 0)
