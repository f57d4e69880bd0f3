"""MobileNetV2, as its paper has it, under the parameter names of the published weights."""

from __future__ import annotations

import io
import tempfile
import warnings
from pathlib import Path
from typing import cast

import torch
from torch import nn

STAGES = (  # expansion, channels, blocks, stride of the first
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
INPUT_SHAPE = (1, 3, 224, 224)


class InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow; add the input where it fits."""

    def __init__(self, channels_in: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels_in * expansion
        widen = [_activated(channels_in, wide, size=1)] if expansion > 1 else []
        self.residual = stride == 1 and channels_in == channels
        self.conv = nn.Sequential(
            *widen,
            _activated(wide, wide, size=3, stride=stride, groups=wide),
            nn.Conv2d(wide, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = cast(torch.Tensor, self.conv(x))
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = [_activated(3, 32, size=3, stride=2)]
        channels_in = 32
        for expansion, channels, count, first_stride in STAGES:
            for place in range(count):
                stride = first_stride if place == 0 else 1
                blocks.append(InvertedResidual(channels_in, channels, stride, expansion))
                channels_in = channels
        blocks.append(_activated(channels_in, 1280, size=1))
        self.features = nn.Sequential(*blocks)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.classifier(self.features(x).mean((2, 3))))


def _activated(
    channels_in: int, channels: int, *, size: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    convolution = nn.Conv2d(
        channels_in, channels, size, stride, size // 2, groups=groups, bias=False
    )
    return nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU6())


def export(weights: bytes, suffix: str) -> bytes:
    """The trained network as the bytes of an .onnx or a .pt2 file."""
    model = MobileNetV2()
    model.load_state_dict(torch.load(io.BytesIO(weights), weights_only=True))
    model.eval()
    example = torch.zeros(INPUT_SHAPE)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / f"mobilenet_v2{suffix}"
        if suffix == ".pt2":
            torch.export.save(torch.export.export(model, (example,)), path)
        else:
            torch.onnx.export(  # The newer exporter needs one more package.
                model,
                (example,),
                str(path),
                dynamo=False,
                opset_version=13,
                input_names=["image"],
                output_names=["scores"],
            )
        return path.read_bytes()
