"""The documentation site: `make docs` builds it with Sphinx into build/docs.

Pages read well without the site. This file holds what they do not: their order.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent

PAGES = {
    "Tutorials": [
        "docs/tutorials/README",
        "docs/tutorials/first-board",
        "docs/tutorials/first-offload",
        "docs/tutorials/first-microcontroller",
        "docs/tutorials/first-farm",
        "docs/tutorials/first-ci",
        "examples/README",
    ],
    "How-tos": [
        "docs/devices",
        "docs/fabric",
        "docs/twins",
        "docs/boards",
        "docs/offload",
        "docs/ncnn",
        "docs/onednn",
        "docs/onnxruntime",
        "docs/acl",
        "docs/ethos-u",
        "docs/tensorrt",
        "docs/cuda",
        "docs/opencl",
        "docs/libraries",
        "docs/bare-metal",
        "docs/cycles",
        "docs/wasm",
        "docs/ends",
        "docs/quantize",
        "docs/evaluate",
        "docs/mlperf",
        "docs/recommend",
        "docs/profile",
        "docs/report",
        "docs/results",
        "docs/tables",
        "docs/ci",
        "docs/export",
        "docs/registry",
        "docs/farm",
        "docs/rpc",
        "docs/cluster",
        "docs/python",
        "CONTRIBUTING",
        "docs/adding/board",
        "docs/adding/microcontrollers",
        "docs/adding/operator",
        "docs/adding/backend",
        "docs/adding/generator",
        "docs/adding/sensor",
        "docs/adding/verb",
    ],
    "Explanations": [
        "docs/verify",
        "docs/schedules",
        "docs/census",
        "docs/tuning",
        "docs/security",
        "docs/untrusted-files",
        "docs/architecture",
        "docs/decisions",
        "docs/scale",
        "docs/landscape",
        "docs/figures",
        "docs/models",
        "docs/onnx-operators",
        "docs/sizes",
        "docs/state",
        "docs/tflite",
        "docs/tflite-operators",
        "docs/torch",
        "docs/torch-operators",
        "docs/torch-architectures",
        "benchmarks/README",
    ],
    "Reference": [
        "docs/cli",
        "docs/project-file",
        "docs/python-reference",
        "docs/exit-codes",
        "docs/bundle",
        "docs/region-export",
        "docs/serial-protocol",
        "docs/README",
        "CHANGELOG",
    ],
}
"""The pages of the site by part, in reading order."""

project = "edgekit"
copyright = "the edgekit authors"
version = re.findall(r'"(.+)"', (ROOT / "edgekit/version.py").read_text("utf-8"))[0]
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = [f"{page}.md" for pages in PAGES.values() for page in pages]
include_patterns += ["README.md", "docs/*.md", "docs/**/*.md"]
html_theme = "furo"
html_title = f"edgekit {version}"
html_theme_options = {"top_of_page_buttons": []}
html_show_sphinx = False
myst_heading_anchors = 4


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _write_index)


def _add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    if page == root_doc:
        for part, pages in PAGES.items():
            entries = "\n".join(f"/{each}" for each in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {part}\n\n{entries}\n```\n"


def _write_index(app: Sphinx, error: Exception | None) -> None:
    """Let the site's folder open on its first page."""
    if error is None and app.builder.format == "html":
        first = Path(app.outdir) / f"{app.config.root_doc}.html"
        (Path(app.outdir) / "index.html").write_bytes(first.read_bytes())
