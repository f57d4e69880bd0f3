"""What an export writes down: unwise names, and what may be written over."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import UsageError
from edgekit.verbs.export.model_header import c_string
from edgekit.verbs.export.record import RECORD, Record, check_destination, sums_of, write_record
from edgekit.verbs.export.template import TEMPLATE, filled, program_name


@given(st.text())
def test_any_name_is_one_string_literal_with_the_same_bytes(text: str) -> None:
    literal = c_string(text)
    assert re.fullmatch(r'"[ -~]*"', literal)
    assert "??" not in literal
    # C and Python read octal escapes alike.
    assert ast.literal_eval("b" + literal) == text.encode("utf-8", "replace")


@given(st.text())
def test_any_model_gives_a_name_for_files_units_and_users(text: str) -> None:
    name = program_name(text)
    assert re.fullmatch(r"[a-z](-?[a-z0-9])*", name)
    assert name.endswith("model")
    assert len(name) <= 60


def test_a_models_name_is_recognised_in_its_programs() -> None:
    assert program_name("MobileNet_v2 (1.0)") == "mobilenet-v2-1-0-model"
    assert program_name("7") == "net-7-model"
    assert program_name("model") == "model"


def test_a_gap_that_nobody_fills_is_an_error() -> None:
    with pytest.raises(KeyError):
        filled("service.in", {"program": "x"})


def test_the_templates_are_the_packages_own_files() -> None:
    names = {path.relative_to(TEMPLATE).as_posix() for path in TEMPLATE.rglob("*.*")}
    assert {"CMakeLists.txt", "README.md", "service.in", "src/main.cc"} <= names


def exported(folder: Path) -> Path:
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "main.cc").write_text("int main() {}\n")
    (folder / "README.md").write_text("read me\n")
    sums = sums_of(folder)
    write_record(folder, Record("0", "m", "local", "host", "0" * 64, sums))
    return folder


def test_an_export_that_nobody_touched_may_be_replaced(tmp_path: Path) -> None:
    folder = exported(tmp_path / "app")
    check_destination(folder)
    (folder / "build" / "bin").mkdir(parents=True)
    (folder / "build" / "CMakeCache.txt").touch()
    (folder / "build" / "bin" / "m").touch()
    check_destination(folder)
    (folder / "README.md").unlink()
    check_destination(folder)


def test_somebodys_work_is_not_written_over(tmp_path: Path) -> None:
    changed = exported(tmp_path / "changed")
    (changed / "src" / "main.cc").write_text("int main() { return 1; }\n")
    added = exported(tmp_path / "added")
    (added / "src" / "camera.cc").touch()
    linked = exported(tmp_path / "linked")
    (linked / "data").symlink_to(tmp_path, target_is_directory=True)
    unrecorded = exported(tmp_path / "unrecorded")
    (unrecorded / RECORD).write_text("[" * 100_000)
    foreign = exported(tmp_path / "foreign")
    (foreign / "build").mkdir()
    (foreign / "build" / "thesis.txt").touch()
    for folder, lost in (
        (changed, "src/main.cc"),
        (added, "src/camera.cc"),
        (linked, "data"),
        (unrecorded, "README.md"),
        (foreign, "build/thesis.txt"),
    ):
        with pytest.raises(UsageError, match=lost):
            check_destination(folder)
    with pytest.raises(UsageError, match="is a file"):
        check_destination(changed / "README.md")
