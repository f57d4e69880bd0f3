"""The page of `edgekit report` in a browser: at three widths, in the dark, by keys and touch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from support.browser import WIDTHS, Tab, browser_tab
from support.building import run_edgekit
from support.needs import needs
from support.onnx_models import onnx_model
from support.stores import a_point, a_run, a_session

import edgekit
from edgekit.base.errors import InputError, UsageError
from edgekit.store.bench_runs import save_bench_runs
from edgekit.store.database import close_store, open_store
from edgekit.store.findings import Findings
from edgekit.store.runs import Conditions
from edgekit.store.saving import save_findings

HOSTILE = "</script><img src=x onerror=alert(1)>"
PARTS = (
    *("graph", "steps", "timeline", "latencies", "roofline", "memory", "energy", "tuning"),
    "history",
)


@dataclass(frozen=True)
class Made:
    folder: Path
    page: Path
    run: str
    environment: dict[str, str]

    def edgekit(self, *words: str) -> Any:
        """Return the document that a command prints."""
        done = run_edgekit(*words, "--json", folder=self.folder, extra=self.environment)
        assert done.code == 0, done.err
        return json.loads(done.out)


def write_model(path: Path) -> None:
    """Three convolutions, two of them side by side, with names that a stranger chose."""
    weights = {
        name: np.linspace(-1, 1, 8 * channels * 9, dtype=np.float32).reshape(8, channels, 3, 3)
        for name, channels in (("first.w", 3), ("left.w", 8), ("right.w", 8))
    }
    pads = [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["image", "first.w"], ["first"], name="first", pads=pads),
        helper.make_node("Conv", ["first", "left.w"], ["left"], name=HOSTILE, pads=pads),
        helper.make_node("Conv", ["first", "right.w"], ["right"], name="right", pads=pads),
        helper.make_node("MaxPool", ["left"], ["pooled"], name="pool", kernel_shape=[2, 2]),
        helper.make_node("Flatten", ["right"], ["flat"], name="flatten"),
        helper.make_node("Softmax", ["flat"], ["shares"], name="shares"),
    ]
    onnx.save(onnx_model(nodes, {"image": [1, 3, 32, 32]}, ["pooled", "shares"], weights), path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A bundle that was measured, beside an earlier run on a board with sensors, and a search."""
    folder = tmp_path_factory.mktemp("report")
    write_model(folder / "net.onnx")
    url = f"sqlite:///{folder / 'store.db'}"
    made = Made(folder, folder / "page.html", "", {"EDGEKIT_STORE": url})
    made.edgekit("build", "net.onnx", "--board", "local")
    bench = ("--runs", "50", "--seconds", "0", "--threads", "1", "--profile")
    run = made.edgekit("bench", "build/net-local", *bench)["kept_as"]
    store = open_store(url)
    sensed = Conditions(threads=1, temperature_c=48.0)
    earlier = a_run(device="local", joules=0.0021, conditions=sensed)
    build = {"model": "net", "board": "local", "edgekit_version": "0.0.9"}
    save_bench_runs(store, [_with_build(earlier, **build)])
    save_findings(store, [Findings(session=a_session(board="local"))])
    save_findings(store, [Findings(progress=a_point(number)) for number in range(20)])
    close_store(store)
    document = made.edgekit("report", "build/net-local", "--out", "page.html")
    assert [part["name"] for part in document["parts"]] == list(PARTS)
    assert not any(part["missing"] for part in document["parts"])
    return Made(folder, folder / "page.html", str(run), made.environment)


def _with_build(run: edgekit.BenchRun, **facts: str) -> edgekit.BenchRun:
    return replace(run, build=replace(run.build, **facts))


def test_a_path_without_a_bundle_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no bundle and no model at .*build/none"):
        edgekit.Workspace(tmp_path).report("build/none")


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser_tab() as tab:
        yield tab


def opened(tab: Tab, made: Made, width: int, **how: bool) -> Tab:
    tab.events.clear()
    tab.show(made.page.as_uri(), width, **how)
    tab.until("document.documentElement.dataset.drawn && document.documentElement.dataset.ready")
    return tab


def methods(tab: Tab, name: str) -> list[dict[str, Any]]:
    return [event["params"] for event in tab.events if event["method"] == name]


@needs("chromium")
@pytest.mark.parametrize(("width", "dark"), [("phone", True), ("tablet", False), ("desktop", True)])
def test_every_part_is_drawn_and_fits(
    made: Made, tab: Tab, width: str, dark: bool, tmp_path: Path
) -> None:
    pixels = WIDTHS[width]
    opened(tab, made, pixels, dark=dark)

    assert tab.run("document.documentElement.scrollWidth") <= pixels
    assert tab.run("[...document.querySelectorAll('section')].map(one => one.id)") == list(PARTS)
    empty = (
        "[...document.querySelectorAll('.chart')].filter(one => !one.querySelector('path, rect'))"
    )
    assert tab.run(f"{empty}.length") == 0
    wide = (
        "[...document.querySelectorAll('.chart > *')].map(one => one.getBoundingClientRect().width)"
    )
    assert max(tab.run(wide)) <= pixels
    assert tab.run("document.querySelectorAll('.node').length") >= 4
    assert tab.violations() == []
    background = tab.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != dark
    requests = [one["request"]["url"] for one in methods(tab, "Network.requestWillBeSent")]
    assert requests == [made.page.as_uri()]
    assert methods(tab, "Runtime.exceptionThrown") == []
    assert methods(tab, "Log.entryAdded") == []
    assert tab.picture(tmp_path / "page.png").stat().st_size > 20_000


@needs("chromium")
def test_a_layer_is_found_by_keys_and_says_all_that_is_known(made: Made, tab: Tab) -> None:
    opened(tab, made, WIDTHS["desktop"])
    chosen = "document.querySelector('aside').innerText"

    tab.run("document.querySelector('.graph input').focus()")
    for letter in "right":
        tab.press(letter)
    assert "right" in tab.run("document.querySelector('aside h3').textContent")
    assert {"RUN BY", "TIME", "SHARE"} <= set(tab.run(chosen).upper().split("\n"))
    nodes = json.loads(tab.run("document.getElementById('pictures').textContent"))["graph"]["graph"]
    hits = [one for one in nodes["nodes"] if "right" in str(one["facts"])]
    assert tab.run("document.querySelectorAll('.node.found').length") == len(hits) < 4

    tab.run("document.querySelector('.node').focus()")
    before = tab.run(chosen)
    tab.press("ArrowDown")
    assert tab.run(chosen) != before
    tab.press("ArrowUp")
    assert "first" in tab.run("document.querySelector('aside h3').textContent")
    assert tab.run("document.activeElement.classList.contains('node')")
    assert tab.run("document.querySelectorAll('.chosen[aria-pressed=true]').length") == 1


@needs("chromium")
def test_a_finger_moves_two_zoom_and_a_touch_chooses(made: Made, tab: Tab) -> None:
    opened(tab, made, WIDTHS["phone"], touch=True)
    tab.run("document.querySelector('.stage').scrollIntoView()")
    box = tab.run(
        "(({x, y, width, height}) => ({x, y, width, height}))"
        "(document.querySelector('.stage svg').getBoundingClientRect())"
    )
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    seen = "document.querySelector('.stage svg').getAttribute('viewBox').split(' ').map(Number)"
    left, top, wide, _ = tab.run(seen)

    tab.touch("touchStart", (x, y))
    tab.touch("touchMove", (x + 30, y + 40))
    tab.touch("touchEnd")
    moved = tab.run(seen)
    assert (moved[0] < left, moved[1] < top) == (True, True)
    assert moved[2] == pytest.approx(wide)

    tab.touch("touchStart", (x - 20, y), (x + 20, y))
    tab.touch("touchMove", (x - 60, y), (x + 60, y))
    tab.touch("touchEnd")
    assert tab.run(seen)[2] < wide / 1.5

    tab.run("document.querySelector('[data-do=fit]').click()")
    place = tab.run(
        "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
        "([...document.querySelectorAll('.node')].pop().getBoundingClientRect())"
    )
    tab.touch("touchStart", (place[0], place[1]))
    tab.touch("touchEnd")
    assert tab.run("[...document.querySelectorAll('.node')].pop().classList.contains('chosen')")


@needs("chromium")
def test_a_hostile_name_is_shown_and_never_run(made: Made, tab: Tab) -> None:
    opened(tab, made, WIDTHS["desktop"])

    assert tab.run("document.querySelectorAll('img').length") == 0
    assert HOSTILE in tab.run("document.getElementById('pictures').textContent").replace(
        "\\u003c", "<"
    ).replace("\\u003e", ">")
    assert "</script>" in tab.run("document.querySelector('#graph').textContent")
    blocked = """new Promise(done => {
      document.addEventListener('securitypolicyviolation', event => done(event.effectiveDirective));
      document.body.append(Object.assign(document.createElement('img'), {src: 'https://a.invalid'}));
    })"""
    assert tab.run(blocked) == "img-src"


def test_a_run_and_a_model_have_reports_too(made: Made) -> None:
    run = made.edgekit("report", made.run[:8])
    names = {part["name"]: part for part in run["parts"]}
    assert names["graph"]["graph"]["nodes"]
    assert "edgekit build MODEL" in names["memory"]["missing"]

    model = made.edgekit("report", "net.onnx", "--board", "local")
    nodes = model["parts"][0]["graph"]["nodes"]
    assert any(dict(node["facts"]).get("operators") == "nn.conv2d" for node in nodes)
    assert "--profile" in model["parts"][1]["missing"]

    done = run_edgekit("report", "build/net-local", folder=made.folder, extra=made.environment)
    assert done.code == 0
    assert "wrote net-local-report.html" in done.out
    assert (made.folder / "net-local-report.html").stat().st_size > 500_000


def test_a_report_in_python_is_a_frame_in_a_notebook(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", made.environment["EDGEKIT_STORE"])
    workspace = edgekit.Workspace(made.folder)

    report = workspace.report("build/net-local")
    assert isinstance(report, edgekit.ModelReport)
    assert "roofline" in str(report)
    shown = report._repr_html_()
    assert shown.startswith("<iframe")
    assert 'sandbox="allow-scripts"' in shown
    assert "<script" not in shown
    with pytest.raises(UsageError, match="decides about a model"):
        workspace.report("latest", board="local")
