"""Reads a WAV file as the waveform that a model takes. The file is untrusted."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.errors import InputError
from edgekit.base.tensors import TensorSpec

SUFFIX = ".wav"


def read_wav(path: Path, spec: TensorSpec) -> Array:
    """Return 16-bit samples of one channel, cut or filled with silence to the input's length.

    They are numbers from -1 to 1, and as they are in the file for an input of int16.
    """
    if sum(extent != 1 for extent in spec.shape) != 1:
        raise InputError(
            f"{path} is sound, and the input {spec.name!r} takes {spec}, which is no waveform",
            hint="compute the features that the model takes, and store them as .npy",
        )
    try:
        with path.open("rb") as stream, wave.open(stream) as sound:
            form = (sound.getnchannels(), sound.getsampwidth())
            if form != (1, 2):
                raise InputError(
                    f"{path} has {form[0]} channels of {8 * form[1]} bits",
                    hint="store one channel of 16 bits, at the rate that the model was trained at",
                )
            frames = np.frombuffer(sound.readframes(spec.elements), "<i2")
    except (OSError, EOFError, ValueError, wave.Error) as error:
        raise InputError(
            f"{path} is no sound that can be read: {error}", hint="store it as a WAV of 16-bit PCM"
        ) from error
    whole = np.zeros(spec.elements, np.float64)
    whole[: frames.size] = frames
    return _stored(whole, spec).reshape(spec.shape)


def _stored(values: Array, spec: TensorSpec) -> Array:
    dtype = numpy_dtype(spec.dtype)
    if spec.dtype == "int16" and spec.quantization is None:
        return np.asarray(values, dtype)
    values = values / 32768
    if dtype.kind not in "iu":
        return np.asarray(values, dtype)
    if spec.quantization is None or len(spec.quantization.scales) != 1:
        raise InputError(
            f"nothing says how sound becomes {spec}", hint="store the samples as .npy yourself"
        )
    steps = np.rint(values / spec.quantization.scales[0] + spec.quantization.zero_points[0])
    limits = np.iinfo(dtype)
    return np.asarray(np.clip(steps, limits.min, limits.max), dtype)
