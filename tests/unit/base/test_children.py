"""What a child process finds by name: nothing of the folder that its caller is in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import edgekit
from edgekit.base.children import import_folders, module_command, run, spoken_module
from edgekit.base.programs import find_program, with_absolute_paths

ROOT = str(Path(edgekit.__file__).resolve().parent.parent)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with programs of its own."""
    for place in (tmp_path, tmp_path / "bin"):
        place.mkdir(exist_ok=True)
        (place / "gcc").write_text("#!/bin/sh\n")
        (place / "gcc").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", ["", ".", ":", "::", "bin", "./bin", ".:bin", "bin:", ":/empty"])
@pytest.mark.parametrize("name", ["gcc", "./gcc", "bin/gcc", "../gcc", ""])
def test_no_program_of_the_current_folder_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, path: str, name: str
) -> None:
    monkeypatch.setenv("PATH", path)

    assert find_program(name) is None


def test_a_program_in_an_absolute_folder_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f":.:{folder}/bin")

    assert find_program("gcc") == folder / "bin" / "gcc"
    assert find_program(str(folder / "gcc")) == folder / "gcc"
    monkeypatch.setenv("PATH", ".")
    assert find_program("gcc", [str(folder)]) == folder / "gcc"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("/a:/b", "/a:/b"),
        (":/a", "/a"),
        ("/a:", "/a"),
        ("/a::/b", "/a:/b"),
        (".:/a:lib", "/a"),
        ("./x:/a:../y", "/a"),
        ("", None),
        (":", None),
        (".", None),
    ],
)
def test_lists_of_folders_keep_absolute_ones(value: str, kept: str | None) -> None:
    for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "CPATH", "LIBRARY_PATH", "OPENOCD_SCRIPTS"):
        assert with_absolute_paths({name: value, "OTHER": value}).get(name) == kept
    assert with_absolute_paths({"OTHER": value})["OTHER"] == value
    assert with_absolute_paths({"PATH": value})["PATH"] == (kept or os.defpath)


def test_a_list_with_spaces_between_its_folders_keeps_absolute_ones() -> None:
    """Tcl's are written so."""
    assert with_absolute_paths({"TCLLIBPATH": "/a ./b c /d"})["TCLLIBPATH"] == "/a /d"
    assert "TCLLIBPATH" not in with_absolute_paths({"TCLLIBPATH": "."})


def test_modules_of_the_current_folder_are_not_imported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", ".", str(folder), "relative", "/absolute", ROOT])

    assert import_folders() == ("/absolute", ROOT)


def test_edgekit_itself_is_imported_wherever_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/absolute"])
    assert import_folders() == (ROOT, "/absolute")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", ["", ROOT, "/absolute"])
    assert import_folders() == (ROOT, "/absolute")


def test_the_current_folder_may_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert ROOT in import_folders()


def test_python_is_started_isolated_with_the_modules_name_as_a_word() -> None:
    command = module_command("edgekit.farm.worker", "a", "b")

    assert command[:2] == (sys.executable, "-I")
    assert command[-3:] == ("edgekit.farm.worker", "a", "b")
    assert "-m" not in command


def test_a_module_runs_as_it_would_with_m(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shown.py").write_text(
        "import sys\nprint(__name__, sys.argv[1:], sys.flags.isolated, '' in sys.path)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    done = run(module_command("shown", "a b", "-c", "--"), limit_s=60)

    assert done.output == "__main__ ['a b', '-c', '--'] 1 False\n", done.errors


def test_a_tool_without_a_folder_runs_in_an_empty_one_of_its_own(folder: Path) -> None:
    seen = run(["sh", "-c", "pwd; ls -A; stat -c %a ."], limit_s=60).output.splitlines()

    assert len(seen) == 2
    assert Path(seen[0]) != folder
    assert not Path(seen[0]).exists()
    assert seen[1] == "700"


def test_a_program_that_only_the_current_folder_has_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", ".:bin")
    for name in ("gcc", "./gcc"):
        with pytest.raises(FileNotFoundError):
            run([name], limit_s=60)


def test_what_a_user_types_does_not_import_from_the_current_folder() -> None:
    said = spoken_module("pip")

    assert said.startswith(sys.executable)
    assert said.endswith((" -P -m pip", " -I -m pip"))
