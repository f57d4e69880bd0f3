"""docs/python.md, its reference and the examples: what they show runs."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from support.local_bundles import built_bundle
from support.needs import TWIN, needs
from support.source import ROOT

import edgekit

PAGE = ROOT / "docs" / "python.md"
NOTEBOOK = ROOT / "examples" / "python" / "first_steps.ipynb"


def blocks(*kinds: str) -> str:
    """The Python of the page, in order."""
    found = re.findall(r"```(python[^\n]*)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return "\n".join(text for kind, text in found if kind in kinds)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    model, _ = built_bundle(folder)
    model.rename(folder / "net.onnx")
    return folder


def run_in(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("EDGEKIT_STORE", f"sqlite:///{folder}/measurements.db")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_runs_on_this_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run_in(folder, blocks("python"), monkeypatch)

    assert "(1, 4, 8, 8)" in printed
    assert printed.count("verified: local against onnxruntime") == 1
    assert "cancelled" in printed
    assert "the model has no input named 'imag' - did you mean image?" in printed


@pytest.mark.slow
@needs(*TWIN, "ncnn-rpi4")
def test_the_page_runs_on_a_twin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run_in(folder, blocks("python", "python twin"), monkeypatch)

    assert "rpi4 verified: rpi4 against onnxruntime" in printed


@pytest.mark.slow
def test_the_page_and_the_example_are_well_typed(folder: Path) -> None:
    """Reuse what `make lint` found out about edgekit, if it ran: half a minute otherwise."""
    page = folder / "page.py"
    page.write_text(blocks("python", "python twin"))
    words = [str(page), "examples/python/deploy.py"]

    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words], cwd=ROOT, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_reference_is_current() -> None:
    generator = runpy.run_path(str(ROOT / "docs" / "make_python_reference.py"))

    written = (ROOT / "docs" / "python-reference.md").read_text("utf-8")
    assert written == generator["python_reference"](), "run python docs/make_python_reference.py"


def test_every_method_has_a_docstring_that_says_what_it_does() -> None:
    lacking = [
        f"{cls.__name__}.{name}"
        for cls in (edgekit.Workspace, edgekit.DeviceHandle, edgekit.BundleSession)
        for base in cls.__mro__
        if base.__module__.startswith("edgekit")
        for name, member in vars(base).items()
        if not name.startswith("_")
        and (callable(member) or isinstance(member, property))
        and not member.__doc__
    ]

    assert not lacking


def test_the_example_deploys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", "off")

    done = subprocess.run(
        [sys.executable, ROOT / "examples/python/deploy.py", "net.onnx", "local"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("deployed to local: verified, median")


@needs("notebook")
def test_the_notebook_runs_and_shows_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("EDGEKIT_STORE", "off")
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()

    shown = [
        output["data"].get("text/html", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    assert sum("<table>" in html for html in shown) == 3
    assert any("verified: local against onnxruntime" in html for html in shown)


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]

    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)
