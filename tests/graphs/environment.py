"""Where nnsmith and its graphs are: in the user's cache, nnsmith apart from every environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = (
    "nnsmith==0.1.0",
    "antlr4-python3-runtime==4.9.3",
    "appdirs==1.4.4",
    "colorlog==6.12.0",
    "hydra-colorlog==1.2.0",
    "hydra-core==1.3.8",
    "multipledispatch==1.0.0",
    "omegaconf==2.4.0",
    "packaging==26.3",
    "pyyaml==6.0.3",
    "z3-solver==5.4.0.0",
)
"""What nnsmith needs but torch, onnx and numpy, which it takes from this environment."""


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgekit-ci"


def graphs_folder() -> Path:
    return cache_folder() / "graphs-nnsmith-0.1.0"


def nnsmith_path() -> Path:
    """The folder with nnsmith; installed once."""
    place = cache_folder() / "nnsmith-0.1.0"
    mark = place / ".complete"
    if not mark.exists() or mark.read_text() != "\n".join(REQUIREMENTS):
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--upgrade"]
        subprocess.run([*pip, "--target", str(place), *REQUIREMENTS], check=True)
        mark.write_text("\n".join(REQUIREMENTS))
    return place
