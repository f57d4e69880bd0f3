"""Networks as PyTorch exports them with dynamic axes: the same numbers, with garbage as padding."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import pytest
from support.needs import import_needed
from support.varying import compared, padded_nodes

from edgekit.base.errors import UnsupportedModelError
from edgekit.base.tensors import Range
from edgekit.models.onnx.lengths import Fixed, fix

torch = import_needed("torch")
nn, functional = torch.nn, torch.nn.functional

B, N, M = Range(1, 3, "b"), Range(1, 40, "n"), Range(1, 30, "m")
IDS = torch.randint(0, 50, (2, 9))


def exported(network, inputs, names, ranges) -> onnx.ModelProto:
    torch.manual_seed(0)
    file = io.BytesIO()
    axes = {
        name: {i: one.name for i, one in enumerate(shape) if isinstance(one, Range)}
        for name, shape in ranges.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(), inputs, file, input_names=names, dynamic_axes=axes,
            opset_version=17, dynamo=False,
        )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


def check(network, inputs, ranges, **options) -> Fixed:
    proto = exported(network, inputs, list(ranges), ranges)
    alone = {name: tuple(2 if one is B else one for one in shape) for name, shape in ranges.items()}
    if alone != ranges and set(alone) != {"batch"}:
        compared(proto, alone, below=40, tolerance=1e-4, **options)
    return compared(proto, ranges, below=40, tolerance=1e-4, **options)


class Attention(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, size
        self.q, self.k, self.v, self.o = (nn.Linear(size, size) for _ in range(4))

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x, other, mask=None):
        q, k, v = self.split(self.q(x)), self.split(self.k(other)), self.split(self.v(other))
        scores = q @ k.transpose(-1, -2) / (self.size // self.heads) ** 0.5
        if mask is not None:
            scores = scores + mask
        found = (scores.softmax(-1) @ v).permute(0, 2, 1, 3)
        return self.o(found.reshape(x.shape[0], x.shape[1], self.size))


class Layer(nn.Module):
    def __init__(self, size: int = 32, crossed: bool = False) -> None:
        super().__init__()
        self.attention, self.norms = (
            Attention(size, 4),
            nn.ModuleList(map(nn.LayerNorm, [size] * 3)),
        )
        self.crossed = Attention(size, 4) if crossed else None
        self.wide, self.narrow = nn.Linear(size, 64), nn.Linear(64, size)

    def forward(self, x, mask=None, other=None):
        x = self.norms[0](x + self.attention(x, x, mask))
        if self.crossed is not None:
            x = self.norms[2](x + self.crossed(x, other))
        return self.norms[1](x + self.narrow(functional.gelu(self.wide(x))))


class Encoder(nn.Module):
    """Words to a sentence's vector, as MiniLM and its kind."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 32), nn.Embedding(64, 32)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.register_buffer("numbers", torch.arange(64)[None])

    def forward(self, ids, mask=None):
        x = self.words(ids) + self.places(self.numbers[:, : ids.shape[1]])
        hidden = None
        if mask is not None:
            hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, hidden)
        if mask is None:
            return x, x.mean(1), x.amax(1)
        weight = mask[..., None].to(x.dtype)
        pooled = (x * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return x, functional.normalize(pooled, dim=1)


def some(shape, random):
    """Make attention masks: ones, then zeros."""
    return np.arange(shape[1])[None] < random.integers(1, shape[1] + 1, (shape[0], 1))


def test_an_encoder_with_masks():
    ranges = {"ids": (B, N), "mask": (B, N)}
    inputs = (IDS, torch.ones(2, 9, dtype=torch.int64))
    fixed = check(Encoder(), inputs, ranges, given={"mask": some})
    assert len(list(padded_nodes(fixed, "Where"))) == 8  # ids; places; two in each layer; two sums.


def test_an_encoder_without_masks():
    fixed = check(Encoder(), (IDS,), {"ids": (B, N)})
    assert len(list(padded_nodes(fixed, "Where"))) <= 8


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Layer(), Layer(crossed=True)

    def forward(self, text, said):
        causal = torch.triu(torch.full((said.shape[1], said.shape[1]), float("-inf")), 1)
        return self.decoder(said, causal, self.encoder(text))


def test_a_decoder_that_looks_at_an_encoder():
    inputs = (torch.randn(2, 7, 32), torch.randn(2, 5, 32))
    check(Translator(), inputs, {"text": (B, N, 32), "said": (B, M, 32)})


class Waves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv1d(3, 8, 7, 2, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(3, 2, 1)),
            *(nn.Conv1d(8, 8, 3, dilation=2, padding=2), nn.GELU(), nn.Conv1d(8, 12, 5, 3)),
        )
        self.classes = nn.Linear(12, 5)

    def forward(self, x):
        y = self.body(functional.pad(x, (4, 4), mode="reflect"))
        return y, self.classes(y.mean(-1)), functional.adaptive_avg_pool1d(y, 1)


def test_a_convolutional_network_along_time():
    check(Waves(), (torch.randn(2, 3, 99),), {"x": (B, 3, Range(40, 99, "n"))})


class Tagger(nn.Module):
    def __init__(self, kind) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layers = kind(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(24, 7)

    def forward(self, ids):
        y, last = self.layers(self.words(ids))
        return self.tags(y).log_softmax(-1), last[0] if isinstance(last, tuple) else last


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_taggers_of_both_directions(kind):
    check(Tagger(kind), (IDS,), {"ids": (B, N)})


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.InstanceNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.ReLU())
        self.up, self.classes = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        a = self.first(x)
        up = self.up(self.second(a))[:, :, : a.shape[2], : a.shape[3]]
        y = self.classes(torch.cat([a, up], 1))
        whole = functional.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)
        return whole, functional.interpolate(y, scale_factor=2, mode="nearest").argmax(1)


def test_a_network_over_pictures_of_any_size():
    ranges = {"x": (1, 3, Range(20, 60, "h"), Range(17, 61, "w"))}
    check(Segmenter(), (torch.randn(1, 3, 37, 41),), ranges)


def test_batches():
    network = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(8, 10), nn.Softmax(-1)),
    )
    fixed = check(network, (torch.randn(2, 3, 32, 32),), {"batch": (Range(1, 5, "b"), 3, 32, 32)})
    assert not list(padded_nodes(fixed, "Where"))  # A batch needs no mask.


def test_a_size_that_tracing_has_fixed_is_refused():
    class Fixed(nn.Module):
        def forward(self, x):
            return x.reshape(int(x.shape[1]), 4).sum(0)

    proto = exported(Fixed(), (torch.randn(1, 9, 4),), ["x"], {"x": (1, N, 4)})
    with pytest.raises(UnsupportedModelError, match=r"Reshape .*36 elements of one that has 4.n"):
        fix(proto, {"x": (1, N, 4)})
