"""Where nnsmith and its graphs are: in the user's cache, nnsmith apart from every environment."""

from __future__ import annotations

import os
from pathlib import Path

from support.needs import PROGRAMS, require


def graphs_folder() -> Path:
    """Return the folder that keeps graphs and results from one campaign to the next."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "edgekit-ci" / "graphs-nnsmith-0.1.0"


def nnsmith_path() -> Path:
    """Return the folder with nnsmith and what it needs but torch, onnx and numpy, which it takes
    from this environment. `make setup` installs it."""
    require("nnsmith")
    return PROGRAMS / "nnsmith"
