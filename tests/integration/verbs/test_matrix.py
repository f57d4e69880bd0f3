"""edgekit bench --boards: boards times offloads, the reports, and going on where it was."""

from __future__ import annotations

import csv
import json
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.building import run_edgekit, write_model
from support.junit import outcomes, told
from support.needs import needs

from edgekit.verbs.matrix import _failed, _State


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path / "net.onnx")
    return tmp_path


def matrix(folder: Path, *arguments: str) -> dict[str, Any]:
    words = ("bench", "net.onnx", "--seconds", "0.1", *arguments, "--json")
    ran = run_edgekit(*words, folder=folder)
    assert ran.code in (0, 10), ran.err  # 10: a library that is not built here
    return dict(json.loads(ran.out))


def test_every_cell_is_proven_measured_and_in_every_report(folder: Path) -> None:
    done = matrix(folder, "--boards", "local", "--offload", "none,onednn", "-o", "out")
    cells = done["cells"]
    assert [(c["board"], c["offload"]) for c in cells] == [("local", "none"), ("local", "onednn")]
    first = cells[0]
    assert first["status"] == "done"
    assert first["median"] > 0
    assert first["oracle"].startswith("onnxruntime")
    assert first["max_error"] < 1e-3
    out = folder / "out"
    assert "| local | none |" in (out / "matrix.md").read_text()
    rows = list(csv.DictReader((out / "matrix.csv").read_text().splitlines()))
    assert [float(row["median"]) for row in rows if row["median"]] == [
        c["median"] for c in cells if c["median"]
    ]
    page = (out / "matrix.html").read_text()
    HTMLParser().feed(page)
    assert "<svg" in page
    assert "<script" not in page


def test_what_is_done_is_kept_and_what_failed_is_tried_again(folder: Path) -> None:
    first = matrix(folder, "--boards", "local", "--offload", "none", "-o", "out")["cells"][0]
    again = matrix(folder, "--boards", "local", "--offload", "none", "-o", "out")["cells"][0]
    assert again == first
    longer = matrix(folder, "--boards", "local", "--offload", "none", "-o", "out", "--warmup", "3")
    assert longer["cells"][0] != first, "measured in another way"
    anew = matrix(folder, "--boards", "local", "--offload", "none", "-o", "out", "--again")
    assert anew["cells"][0]["when"] >= first["when"]
    assert anew["cells"][0] != first

    state = folder / "out" / "matrix.json"
    state.write_text("{")
    ran = run_edgekit("bench", "net.onnx", "--boards", "local", "-o", "out", folder=folder)
    assert ran.code == 2
    assert "--again" in ran.err


@needs("mnn")
def test_runtimes_take_turns_with_the_columns_and_compute_the_same(folder: Path) -> None:
    words = ("--boards", "local,rpi4", "--offload", "none,tuned,int8", "--search", "1s")
    words = (*words, "--beside", "onnxruntime,mnn,litert", "-o", "out")
    cells = {(c["board"], c["offload"]): c for c in matrix(folder, *words)["cells"]}
    own = [cells["local", column] for column in ("none", "tuned", "int8")]
    others = [cells["local", f"beside {name}"] for name in ("onnxruntime", "mnn")]
    assert all(cell["status"] == "done" for cell in (*own, *others))
    assert own[0]["ratio"] == own[0]["ratio_low"] == own[0]["ratio_high"] == 1.0
    for cell in (*own[1:], *others):
        assert 0 < cell["ratio_low"] <= cell["ratio"] <= cell["ratio_high"]
    assert own[1]["search_seconds"] > 0
    assert own[0]["search_seconds"] is own[2]["search_seconds"] is None
    assert len({cell["digest"] for cell in own if cell is not own[1]}) == 2, "int8 is another model"
    for cell, title in zip(others, ("ONNX Runtime ", "MNN "), strict=True):
        assert cell["offloaded"].startswith(title)
        assert cell["max_error"] < 1e-5
        assert cell["memory"] > 0
    assert cells["local", "beside litert"]["status"] == "not possible"
    assert "reads TFLite only" in cells["local", "beside litert"]["error"]
    assert "rpi4 is another one" in cells["rpi4", "beside mnn"]["error"]

    again = {(c["board"], c["offload"]): c for c in matrix(folder, *words)["cells"]}
    assert [again["local", c["offload"]] for c in own] == own, "what is done is kept"


def test_a_runtime_that_there_is_not_is_refused_before_anything_is_built(folder: Path) -> None:
    words = ("--boards", "local", "--beside", "onnx-runtime", "-o", "out")
    ran = run_edgekit("bench", "net.onnx", *words, folder=folder)
    assert ran.code == 2
    assert "did you mean onnxruntime?" in ran.err
    assert not (folder / "out").exists()


def test_a_board_that_is_not_there_stops_no_other(folder: Path) -> None:
    words = ("--boards", "local,rpi5", "--offload", "none,tensorrt", "-o", "out")
    words = (*words, "--junit", "ci/out.xml")
    ran = run_edgekit("bench", "net.onnx", "--seconds", "0.1", *words, folder=folder)
    assert ran.code == 10
    assert "1 of 4 measurements failed" in ran.err
    cells = json.loads((folder / "out" / "matrix.json").read_text())["cells"]
    assert {(c["board"], c["offload"]): c["status"] for c in cells} == {
        ("local", "none"): "done",
        ("local", "tensorrt"): "not possible",
        ("rpi5", "none"): "failed",
        ("rpi5", "tensorrt"): "not possible",
    }
    report = (folder / "out" / "matrix.md").read_text()
    assert "no device is known" in report
    assert "rpi5 can't offload to tensorrt" in report
    assert outcomes(folder / "ci" / "out.xml") == {
        ("net.local", "none"): "passed",
        ("net.local", "tensorrt"): "skipped",
        ("net.rpi5", "none"): "failure",
        ("net.rpi5", "tensorrt"): "skipped",
    }
    assert ["no device is known" in text for text in told(folder / "ci" / "out.xml")] == [True]


def test_a_matrix_that_can_not_begin_is_a_case_too(folder: Path) -> None:
    words = ("--boards", "no-such", "--junit", "out.xml")
    ran = run_edgekit("bench", "net.onnx", *words, folder=folder)
    assert ran.code == 3
    assert outcomes(folder / "out.xml") == {("net", "bench"): "error"}
    assert run_edgekit("bench", "net.onnx", "--junit", "x.xml", folder=folder).code == 2


def test_what_a_board_cannot_use_is_said_and_is_no_failure(folder: Path) -> None:
    words = ("--boards", "local", "--offload", "none,tensorrt", "-o", "out")
    ran = run_edgekit("bench", "net.onnx", "--seconds", "0.1", *words, folder=folder)
    assert ran.code == 0, ran.err
    assert "not possible" in ran.out
    assert "local can't offload to tensorrt" in ran.out
    ran = run_edgekit("bench", "net.onnx", *words[:2], "--offload", "tensorrt", folder=folder)
    assert ran.code == 2, "nothing could be measured"
    assert "local can't offload to tensorrt" in ran.err


def test_boards_that_end_at_the_same_time_lose_no_cell(tmp_path: Path) -> None:
    state = _State(tmp_path / "matrix.json", {}, {})
    names = [f"board-{number}" for number in range(8)]

    def work(name: str) -> None:
        for offload in range(20):
            state.add(_failed(name, str(offload), "because"))

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(json.loads((tmp_path / "matrix.json").read_text())["cells"]) == 160


@pytest.mark.parametrize(
    "words",
    [
        ("--offload", "none"),
        ("--again",),
        ("--beside", "onnxruntime"),
        ("--search", "1s"),
        ("--calibrate", "samples"),
        ("--boards", "local", "--device", "local"),
        ("--boards", ","),
        ("--boards", "nowhere"),
    ],
)
def test_options_that_make_no_sense_are_refused(folder: Path, words: tuple[str, ...]) -> None:
    ran = run_edgekit("bench", "net.onnx", *words, folder=folder)
    assert ran.code in (2, 3)
    assert "Traceback" not in ran.err
    assert "hint:" in ran.err
