"""An export for WebAssembly is a folder that a browser and Node.js run as it is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.building import request_for
from support.needs import needs

from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.verbs.export.application import export

pytestmark = needs("zig")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A model with an input and an output in float32 and in half precision."""
    folder = tmp_path_factory.mktemp("export")
    kinds = {"x": TensorProto.FLOAT, "half": TensorProto.FLOAT16}
    nodes = [
        helper.make_node("Softmax", ["x"], ["y"]),
        helper.make_node("Relu", ["half"], ["positive"]),
    ]
    outputs = {"y": TensorProto.FLOAT, "positive": TensorProto.FLOAT16}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, kind, (2, 5)) for name, kind in kinds.items()],
        [helper.make_tensor_value_info(name, kind, (2, 5)) for name, kind in outputs.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "net.onnx")
    return build(request_for(folder / "net.onnx", "web"), folder / "bundle", isolated=False).bundle


@pytest.fixture(scope="module")
def exported(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "app"
    report = export(bundle, folder)

    assert report.toolchain is None
    assert report.model == bundle.library.stat().st_size
    return folder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        extensions_map = {".mjs": "text/javascript", ".html": "text/html", "": "application/wasm"}  # noqa: RUF012

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def in_browser(address: str, folder: Path) -> str:
    """Return the page as a browser has it when its script has ended."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    seen = ""
    for budget in (20_000, 100_000, 500_000):
        done = subprocess.run(
            [
                *(str(browser), "--headless", "--no-sandbox", "--disable-gpu"),
                *("--disable-dev-shm-usage", f"--user-data-dir={tempfile.mkdtemp(dir=folder)}"),
                *(f"--virtual-time-budget={budget}", "--dump-dom", address),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        seen = done.stdout
        if "Loading" not in seen:
            break
    return seen


@needs("chromium")
def test_the_page_computes_the_expected_outputs_in_a_browser(
    exported: Path, bundle: Bundle, tmp_path: Path
) -> None:
    with served(exported) as address:
        page = in_browser(address, tmp_path)

    assert "The model runs in this browser." in page
    table = page.partition('id="samples"')[2]
    rows = re.findall(r"<tr><td>([\w-]+)</td><td>(y|positive)</td><td[^>]*>([^<]+)</td>", table)
    vectors = [vector.name for vector in bundle.manifest.vectors]
    assert [row[:2] for row in rows] == [
        (name, out) for name in vectors for out in ("y", "positive")
    ]
    assert all(float(difference) < 1e-6 for *_, difference in rows)


@needs("chromium")
def test_a_page_with_wrong_outputs_shows_how_wrong(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    shutil.copytree(exported, folder)
    expected = np.load(folder / "sample" / "expected-0.npy")
    np.save(folder / "sample" / "expected-0.npy", expected + np.float32(0.25))

    with served(folder) as address:
        page = in_browser(address, tmp_path)

    assert re.search(r"<td>random</td><td>y</td><td[^>]*>0\.250</td>", page)


@needs("nodejs")
def test_the_loader_runs_in_nodejs_and_refuses_other_inputs(exported: Path, tmp_path: Path) -> None:
    script = tmp_path / "try.mjs"
    script.write_text(
        f"""
import {{ readFile }} from "node:fs/promises";
import {{ load }} from "{exported}/edgekit.mjs";
const model = await load(await readFile("{exported}/model.wasm"));
const half = new Uint16Array(10).fill(0x3c00);
const said = {{ inputs: model.inputs, outputs: model.run({{ x: new Float32Array(10), half }}) }};
const others = [{{ x: new Float32Array(9), half }}, {{ x: half, half }}, {{ half }}, {{ z: half }}];
const refusal = (inputs) => {{
  try {{ model.run(inputs); }} catch (error) {{ return error.message; }}
}};
said.refused = others.map(refusal);
console.log(JSON.stringify(said));
"""
    )

    done = subprocess.run(["node", str(script)], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)

    assert said["inputs"][1] == {"name": "half", "dtype": "float16", "shape": [2, 5], "bytes": 20}
    assert list(said["outputs"]["y"].values()) == pytest.approx([0.2] * 10)
    assert set(said["outputs"]["positive"].values()) == {0x3C00}
    assert said["refused"] == [
        "the input x is a Float32Array of 10, not Float32Array of 9",
        "the input x is a Float32Array of 10, not Uint16Array of 10",
        "the input x is a Float32Array of 10, not nothing",
        "the model has no input z; it has x, half",
    ]


def test_an_export_is_replaced_unless_it_was_changed(
    bundle: Bundle, exported: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "app"
    first = export(bundle, folder, archive=True)
    again = export(bundle, folder)

    assert first.archive is not None
    assert first.archive.is_file()
    assert {path.name for path in folder.iterdir()} == {path.name for path in exported.iterdir()}
    assert again.files == first.files
