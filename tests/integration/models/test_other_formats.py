"""The lines of Python that edgekit proposes for files of other formats do what it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.needs import import_needed

from edgekit.base.errors import ModelError
from edgekit.models.model import open_model
from edgekit.models.other_formats import refusal

torch = import_needed("torch")


def refused(path: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        open_model(path)
    return caught.value


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())


def run(error: ModelError, folder: Path, replaced: dict[str, str]) -> None:
    """Run the lines as a person does who puts in a network of their own."""
    text = "\n".join(error.details)
    assert len(error.details) == 3
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    before = Path.cwd()
    os.chdir(folder)
    try:
        exec(text, {"Net": network})
    finally:
        os.chdir(before)


def test_weights_become_an_exported_program(tmp_path: Path) -> None:
    path = tmp_path / "it's.pth"
    torch.save(network().state_dict(), path)
    run(refused(path), tmp_path, {"from your_code import Net": "", "224, 224": "8, 8"})
    assert open_model(tmp_path / "it's.pt2").format == "torch"


def test_torch_script_becomes_onnx(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    torch.jit.trace(network().eval(), torch.zeros(1, 3, 8, 8)).save(path)
    error = refusal(path)  # where PyTorch is not installed; else edgekit converts it itself
    assert "TorchScript" in error.message
    run(error, tmp_path, {"224, 224": "8, 8"})
    assert open_model(tmp_path / "net.onnx").format == "onnx"
