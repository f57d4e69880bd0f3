"""Networks that PyTorch exports with dynamic axes, built for a range of sizes and verified."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from support.needs import TWIN, import_needed, needs
from support.twins import edgekit_json, twins_in

import edgekit
from edgekit.building.build import build

torch = import_needed("torch")
nn = torch.nn

LARGEST = 24
SHAPES = {"ids": f"1x(1..{LARGEST})"}
IDS = torch.randint(0, 50, (1, 9), generator=torch.Generator().manual_seed(0))
MASK = torch.ones(1, 9, dtype=torch.int64)


class Block(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.three, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.first, self.second = nn.LayerNorm(size), nn.LayerNorm(size)
        self.wide, self.narrow = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x, mask):
        batch, length, size = x.shape
        three = self.three(x).view(batch, length, 3, self.heads, size // self.heads)
        q, k, v = three.permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.transpose(-1, -2)) / math.sqrt(size // self.heads) + mask
        seen = (weights.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, size)
        x = self.first(x + self.out(seen))
        return self.second(x + self.narrow(nn.functional.gelu(self.wide(x))))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.blocks = nn.ModuleList([Block(16, 2), Block(16, 2)])
        self.classes = nn.Linear(16, 3)

    def forward(self, ids, mask):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        for block in self.blocks:
            x = block(x, hidden)
        return self.classes(x), self.classes(x.mean(1))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layer = nn.LSTM(16, 12, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(24, 5)

    def forward(self, ids):
        return self.tags(self.layer(self.words(ids))[0])


def exported(name: str, folder: Path) -> Path:
    """Write a network as ONNX, with open dimensions."""
    torch.manual_seed(0)
    network, given = (Encoder(), (IDS, MASK)) if name == "encoder" else (Tagger(), (IDS,))
    names = ["ids", "mask"][: len(given)]
    axes = {each: {0: "batch", 1: "length"} for each in names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(), given, str(folder / f"{name}.onnx"), input_names=names,
            dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip
    return folder / f"{name}.onnx"


def feed(names: list[str], size: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(size)
    given = {"ids": random.integers(0, 50, (1, size)), "mask": np.ones((1, size), np.int64)}
    return {name: given[name] for name in names}


@pytest.mark.parametrize("name", ["encoder", "tagger"])
def test_one_bundle_of_a_network_gives_what_the_oracle_does_at_every_size(
    name: str, tmp_path: Path
) -> None:
    model = exported(name, tmp_path)
    ws = edgekit.Workspace(tmp_path)
    request = ws.request(model, board="local", shapes=SHAPES)
    bundle = build(request, tmp_path / "bundle", isolated=False).bundle
    session = onnxruntime.InferenceSession(str(model))
    names = [one.name for one in session.get_inputs()]

    report = ws.verify(bundle, device="local")
    with ws.opened(bundle, device="local") as opened:
        for size in range(1, LARGEST + 1):
            given = feed(names, size)
            found = list(opened.run(given).values())
            for one, expected in zip(found, session.run(None, given), strict=True):
                assert one.shape == expected.shape
                np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)

    assert report.passed
    sizes = {"random", "size-1", "size-6", "size-9", "size-18"}
    assert {sample.name for sample in report.samples} >= sizes


@pytest.mark.slow
def test_a_program_of_pytorch_keeps_its_open_dimensions(tmp_path: Path) -> None:
    torch.manual_seed(0)
    length = torch.export.Dim("length", min=4, max=64)
    axes = {"ids": {1: length}, "mask": {1: length}}
    program = torch.export.export(Encoder().eval(), (IDS, MASK), dynamic_shapes=axes)
    torch.export.save(program, tmp_path / "encoder.pt2")
    ws = edgekit.Workspace(tmp_path)

    bundle = ws.build("encoder.pt2", "bundle", board="local", shapes={"ids": "1x(4..24)"})
    report = ws.verify(bundle, device="local")
    for shape, demand in (("1x(3..24)", ">= 4"), ("1x65", "<= 64")):
        with pytest.raises(edgekit.EdgekitError, match=f"demands .* {demand}") as caught:
            ws.build("encoder.pt2", "wrong", board="local", shapes={"ids": shape, "mask": shape})
        assert caught.value.hint

    assert report.passed and "PyTorch" in report.oracle
    assert {sample.name for sample in report.samples} >= {"random", "largest", "size-4"}


@pytest.mark.slow
@needs(*TWIN)
def test_the_agent_on_a_twin_runs_every_size(
    tmp_path: Path, twin_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported("encoder", tmp_path)
    with twins_in(twin_cache):
        monkeypatch.chdir(tmp_path)
        for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            monkeypatch.setenv(name, str(tmp_path))
        report = edgekit_json(
            *("deploy", "encoder.onnx", "--board", "rpi4", "--twin", "--no-bench"),
            *("--shape", f"ids={SHAPES['ids']}", "-o", "bundle"),
        )

    assert isinstance(report, dict)
    verification = report["verification"]
    assert verification["passed"] is True
    names = {sample["name"] for sample in verification["samples"]}
    assert names >= {"random", "size-1", "size-6", "size-9", "size-18"}
