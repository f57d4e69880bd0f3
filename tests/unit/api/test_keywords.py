from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import edgekit


@pytest.mark.parametrize("method", ["inspect", "recommend", "build", "partition", "deploy"])
def test_a_mistyped_keyword_argument_is_an_error(tmp_path: Path, method: str) -> None:
    workspace: Any = edgekit.Workspace(tmp_path)
    with pytest.raises(TypeError, match="shapez"):
        getattr(workspace, method)("net.onnx", shapez={"x": (1, 3)})
