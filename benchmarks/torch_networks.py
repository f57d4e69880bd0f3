"""Networks as tutorials write them: recurrent, convolutional over time, transformers, a U-Net."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn


class Recurrent(nn.Module):
    """A classifier of sequences, from the last step of an LSTM, a GRU or a plain network."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layers = kind(8, 16, batch_first=True, **options)
        self.classes = nn.Linear(32 if options.get("bidirectional") else 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.classes(self.layers(x)[0][:, -1])


class Tagger(nn.Module):
    """Words to a class for each word; the state is handed in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8, padding_idx=0)
        self.layers = nn.LSTM(8, 16, 2, batch_first=True)
        self.classes = nn.Linear(16, 7)

    def forward(self, words: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
        found, (hidden, cell) = self.layers(self.words(words), (hidden, cell))
        return self.classes(found), hidden, cell


class Temporal(nn.Module):
    """Dilated causal convolutions with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 8, 3, dilation=2**k))
            for k in range(4)
        )
        self.classes = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        for place, layer in enumerate(self.layers):
            x = x + torch.relu(layer(nn.functional.pad(x, (2 * 2**place, 0))))
        return self.classes(x[:, :, -1])


class Encoder(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.words, self.places = nn.Embedding(50, 16), nn.Parameter(torch.randn(12, 16))
        self.classes = nn.Linear(16, 5)

    def forward(self, words: Tensor) -> Tensor:
        found = self.layers(self.words(words) + self.places, src_key_padding_mask=words == 0)
        return self.classes(found.mean(1))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32), 2)

    def forward(self, target: Tensor, memory: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[0])
        return self.layers(target, memory, tgt_mask=mask, tgt_is_causal=True)


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.layers(source, target)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self._block(3, 8), self._block(8, 16)])
        self.bottom, self.up = self._block(16, 32), nn.ModuleList()
        for size in (32, 16):
            self.up.append(nn.ConvTranspose2d(size, size // 2, 2, 2))
            self.up.append(self._block(size, size // 2))
        self.mask = nn.Conv2d(8, 1, 1)

    def _block(self, taken: int, given: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(taken, given, 3, padding=1), nn.GroupNorm(2, given), nn.SiLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for block in self.down:
            skipped.append(block(x))
            x = nn.functional.max_pool2d(skipped[-1], 2)
        x = self.bottom(x)
        for grow, block in zip(self.up[::2], self.up[1::2], strict=True):
            x = block(torch.cat([grow(x), skipped.pop()], 1))
        return torch.sigmoid(self.mask(x))


class Spectrum(nn.Module):
    """A classifier of sound from the logarithm of its spectrum."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.layers = nn.Sequential(nn.Conv1d(33, 8, 3), nn.ReLU(), nn.GRU(31, 8, batch_first=True))
        self.classes = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.stft(x, 64, 32, window=self.window, return_complex=True).abs()
        found, _ = self.layers(torch.log1p(spectrum))
        return self.classes(found[:, -1])


def _words(*shape: int) -> Tensor:
    return torch.randint(1, 50, shape)


NETWORKS: Mapping[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "LSTM classifier": lambda: (Recurrent(nn.LSTM), (torch.randn(2, 11, 8),)),
    "LSTM, two layers, both directions": lambda: (
        Recurrent(nn.LSTM, num_layers=2, bidirectional=True),
        (torch.randn(2, 11, 8),),
    ),
    "GRU classifier": lambda: (Recurrent(nn.GRU), (torch.randn(2, 11, 8),)),
    "RNN classifier": lambda: (Recurrent(nn.RNN, nonlinearity="relu"), (torch.randn(2, 11, 8),)),
    "tagger with state": lambda: (
        Tagger(),
        (_words(1, 9), torch.randn(2, 1, 16), torch.randn(2, 1, 16)),
    ),
    "temporal convolutions": lambda: (Temporal(), (torch.randn(1, 8, 40),)),
    "transformer encoder": lambda: (Encoder(), (_words(2, 12),)),
    "transformer encoder, norm first": lambda: (
        Encoder(norm_first=True, activation="gelu"),
        (_words(2, 12),),
    ),
    "transformer decoder": lambda: (Decoder(), (torch.randn(7, 2, 16), torch.randn(9, 2, 16))),
    "transformer": lambda: (Translator(), (torch.randn(1, 9, 16), torch.randn(1, 5, 16))),
    "U-Net": lambda: (UNet(), (torch.randn(1, 3, 32, 48),)),
    "spectrum of sound": lambda: (Spectrum(), (torch.randn(1, 1024),)),
}
