"""Default output folders belong to what they were made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.base.own_folder import own_folder, remember_origin


def made(start: Path, origin: Path) -> Path:
    folder = own_folder(start, "net-rpi4", origin)
    folder.mkdir(parents=True, exist_ok=True)
    remember_origin(folder, origin)
    return folder


def test_each_origin_has_a_folder_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "net.onnx", tmp_path / "b" / "net.onnx"
    first, second = made(tmp_path, one), made(tmp_path, other)
    assert first == tmp_path / "build" / "net-rpi4"
    assert second != first
    assert second.parent == first.parent
    assert [made(tmp_path, one), made(tmp_path, other)] == [first, second]


def test_a_workspace_that_moves_keeps_its_folders(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    made(old, old / "net.onnx")
    old.rename(new)
    assert own_folder(new, "net-rpi4", new / "net.onnx") == new / "build" / "net-rpi4"
    assert own_folder(new, "net-rpi4", new / "net.tflite").name != "net-rpi4"


@pytest.mark.parametrize("ours", [True, False])
def test_a_folder_without_a_record_is_judged_by_its_content(tmp_path: Path, ours: bool) -> None:
    folder = tmp_path / "build" / "net-rpi4"
    folder.mkdir(parents=True)
    found = own_folder(tmp_path, "net-rpi4", tmp_path / "net.onnx", lambda folder: ours)
    assert (found == folder) is ours


def test_a_folder_that_the_user_named_gets_no_record(tmp_path: Path) -> None:
    remember_origin(tmp_path / "mine", tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []
