"""The C of an exported application that reads pictures, as a library for ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.tensors import TensorSpec
from edgekit.models.images import image_extent
from edgekit.models.preprocess import Preprocess
from edgekit.verbs.export.template import TEMPLATE

_SOURCE = TEMPLATE / "src"
_RESIZE = ("stretch", "crop", "pad")


class _Picture(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("height", "width", "channels")),
        ("pixels", ctypes.POINTER(ctypes.c_uint8)),
    )


class _Placement(ctypes.Structure):
    _fields_ = (("numbers", ctypes.c_int * 10),)


class _Rule(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("height", "width", "channels", "resize")),
        *((name, ctypes.c_int) for name in ("centred", "fill", "on_board", "reversed", "planes")),
        *(("scale", ctypes.c_double), ("mean", ctypes.c_double * 3), ("std", ctypes.c_double * 3)),
        *(("dtype", ctypes.c_char_p), ("step", ctypes.c_double), ("zero", ctypes.c_double)),
    )


class _Frame(ctypes.Structure):
    _fields_ = (("format", ctypes.c_char * 8), ("height", ctypes.c_int), ("width", ctypes.c_int))


class Failed(Exception):
    """What the program would say."""


@dataclass(frozen=True)
class Reader:
    library: Any

    def read(self, path: Path) -> Array:
        picture = _Picture()
        self._checked(self.library.app_read_picture(str(path).encode(), ctypes.byref(picture)))
        return self._array(picture)

    def decode(self, content: bytes) -> Array:
        picture = _Picture()
        length = ctypes.c_size_t(len(content))
        self._checked(self.library.app_decode_picture(content, length, ctypes.byref(picture)))
        return self._array(picture)

    def frame(self, path: Path, words: str) -> Array:
        frame, picture = _Frame(), _Picture()
        self._checked(self.library.app_parse_frame(words.encode(), ctypes.byref(frame)))
        self._checked(
            self.library.app_read_frame(
                str(path).encode(), ctypes.byref(frame), ctypes.byref(picture)
            )
        )
        return self._array(picture)

    def prepare(self, path: Path, spec: TensorSpec, preprocess: Preprocess) -> Array:
        """Return the input that a picture becomes."""
        picture, place = _Picture(), _Placement()
        self._checked(self.library.app_read_picture(str(path).encode(), ctypes.byref(picture)))
        made = np.zeros(spec.shape, numpy_dtype(spec.dtype))
        rule = _rule(spec, preprocess)
        failure = self.library.app_prepare(
            ctypes.byref(picture),
            ctypes.byref(rule),
            made.ctypes.data_as(ctypes.c_void_p),
            ctypes.byref(place),
        )
        self.library.app_free_picture(ctypes.byref(picture))
        self._checked(failure)
        return made

    def _array(self, picture: _Picture) -> Array:
        shape = (picture.height, picture.width, picture.channels)
        found = np.ctypeslib.as_array(picture.pixels, shape).copy()
        self.library.app_free_picture(ctypes.byref(picture))
        return found

    def _checked(self, failure: bytes | None) -> None:
        if failure is not None:
            raise Failed(failure.decode())


def _rule(spec: TensorSpec, preprocess: Preprocess) -> _Rule:
    on_board = preprocess.on == "board"
    height, width = spec.shape[:2] if on_board else image_extent(spec, preprocess)
    mean, std = (
        values * 3 if len(values) == 1 else values for values in (preprocess.mean, preprocess.std)
    )
    steps = spec.quantization
    return _Rule(
        *(height, width, preprocess.channels, _RESIZE.index(preprocess.resize)),
        *(preprocess.anchor == "center", round(preprocess.fill), on_board),
        *(preprocess.color == "bgr", preprocess.layout == "NCHW", preprocess.scale),
        *((ctypes.c_double * 3)(*mean[:3]), (ctypes.c_double * 3)(*std[:3])),
        spec.dtype.encode(),
        *((steps.scales[0], steps.zero_points[0]) if steps else (1, 0)),
    )


def built_reader(folder: Path) -> Reader:
    """Compile the application's reader of pictures."""
    made = folder / "libpictures.so"
    sources = [str(_SOURCE / name) for name in ("picture.c", "decode.c", "frame.c")]
    libraries = ("-ljpeg", "-lpng", "-lm")
    defined = ("-DAPP_HAS_PNG", "-DAPP_HAS_JPEG")
    subprocess.run(
        [
            *("gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", *defined),
            *(*sources, "-o", str(made), *libraries),
        ],
        check=True,
    )
    library = ctypes.CDLL(str(made))
    for name in ("read_picture", "decode_picture", "read_frame", "prepare", "parse_frame"):
        getattr(library, f"app_{name}").restype = ctypes.c_char_p
    return Reader(library)
