"""What a model's process inherits, and which of its last words are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bundles import make_bundle
from support.local_bundles import with_c_library
from support.on_device import run_on

from edgekit.base.errors import DeviceError
from edgekit.bundle.folder import Bundle
from edgekit.devices.local.device import LocalDevice


def last_words(folder: Path, code: str) -> tuple[str, ...]:
    """What is told of a model whose library does this while it is loaded, then aborts."""
    source = (
        "#define _GNU_SOURCE\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        "__attribute__((constructor)) static void start(void) {" + code + " abort(); }"
    )
    bundle: Bundle = with_c_library(make_bundle(folder / "bundle"), folder / "bad", source)
    with pytest.raises(DeviceError, match="SIGABRT") as caught:
        run_on(LocalDevice(240), bundle)
    return caught.value.details


def test_the_last_lines_are_told_and_not_the_first(tmp_path: Path) -> None:
    told = last_words(tmp_path, 'for (int i = 0; i < 300; i++) fprintf(stderr, "line %d\\n", i);')

    assert told[-1] == "line 299"
    assert "line 0" not in told


def test_a_line_without_end_is_told_in_pieces(tmp_path: Path) -> None:
    told = last_words(tmp_path, 'for (int i = 0; i < 1000000; i++) fputs("x", stderr);')

    assert told
    assert max(map(len, told)) <= 4096


def test_frames_of_the_interpreter_are_no_last_words(tmp_path: Path) -> None:
    frame = '  File \\"/build/Python/ceval.c\\", line 1, in eval'
    mine = '  File \\"/home/me/layer.py\\", line 2, in mine'
    told = last_words(tmp_path, f'fputs("{frame}\\n{mine}\\n", stderr);')

    assert [line for line in told if "File" in line] == [mine.replace("\\", "")]


def test_a_terminals_interrupt_does_not_reach_the_process(tmp_path: Path) -> None:
    told = last_words(tmp_path, 'fprintf(stderr, "leads: %d\\n", getsid(0) == getpid());')

    assert told[-1] == "leads: 1"


def test_modules_in_the_current_folder_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('loaded')")
    monkeypatch.chdir(tmp_path)

    assert "it is loaded" in last_words(tmp_path, 'fputs("it is loaded\\n", stderr);')


def test_a_users_own_module_path_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere/of/theirs")

    (path,) = last_words(tmp_path, 'fprintf(stderr, "%s\\n", getenv("PYTHONPATH"));')[-1:]

    assert path.split(":")[-1] == "/somewhere/of/theirs"
