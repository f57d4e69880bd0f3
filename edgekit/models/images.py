"""Turn an image file into an input tensor with the preprocessing that the model's owner declares.

A program with its own preprocessing takes the pixels as they are, in a picture of a fixed size: any
image is brought to that size on the host, in the way that the preprocessing names.

Image files are not trusted: their size is checked before their pixels are decoded, and every
failure of a decoder becomes an InputError.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from edgekit.base.arrays import Array, numpy_dtype, unreadable
from edgekit.base.errors import InputError, MissingToolError
from edgekit.base.tensors import TensorSpec
from edgekit.models.ends.geometry import Size, placement
from edgekit.models.preprocess import Preprocess

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")

_LARGEST_IMAGE_PIXELS = 100_000_000


def load_image(path: Path, spec: TensorSpec, preprocess: Preprocess) -> Array:
    """Decode and resize; where the host does all, reorder, normalise and quantise too."""
    if preprocess.on == "board":
        height, width, _ = spec.shape
        return _decode(path, preprocess, width, height).astype(np.uint8)
    height, width = image_extent(spec, preprocess)
    pixels = _decode(path, preprocess, width, height)
    if preprocess.color == "bgr":
        pixels = pixels[:, :, ::-1]
    mean, std = np.array(preprocess.mean), np.array(preprocess.std)
    values = (pixels * preprocess.scale - mean) / std
    if preprocess.layout == "NCHW":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(_store(values, spec).reshape(spec.shape))


def image_extent(spec: TensorSpec, preprocess: Preprocess) -> tuple[int, int]:
    """Return height and width of the images that an input takes; InputError for another shape."""
    shape = spec.shape[1:] if len(spec.shape) == 4 and spec.shape[0] == 1 else spec.shape
    if len(shape) == 3:
        if preprocess.layout == "NCHW":
            channels, height, width = shape
        else:
            height, width, channels = shape
        if channels == preprocess.channels:
            return height, width
    raise InputError(
        f"the input {spec.name} has shape {spec.shape}, which takes no {preprocess.color} image "
        f"in {preprocess.layout}",
        hint="correct layout and color in its [preprocess] table",
    )


def _decode(path: Path, preprocess: Preprocess, width: int, height: int) -> npt.NDArray[np.float64]:
    """Return pixels of 0 to 255, height x width x channels."""
    image = open_image(path).convert("L" if preprocess.color == "gray" else "RGB")
    resized = _resize(image, preprocess, width, height)
    return np.asarray(resized, dtype=np.float64).reshape(height, width, preprocess.channels)


def check_image(path: Path) -> None:
    """Refuse a file whose head is no image's."""
    _read(path, lambda opened: None)


def open_image(path: Path) -> Image.Image:
    """Decode an image of 8 bits a channel, turned as its EXIF data says."""

    def decode(opened: Image.Image) -> Image.Image:
        from PIL import ImageOps

        opened.load()
        return ImageOps.exif_transpose(opened)

    return _to_eight_bits(_read(path, decode))


def _read(path: Path, use: Callable[[Image.Image], T]) -> T:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingToolError(
            "reading images needs Pillow, which is not installed",
            hint="pip install 'edgekit[images]'",
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=("PNG", "JPEG")) as opened:
                _refuse_huge(path, opened.width * opened.height)
                return use(opened)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(path) from error
    except InputError:
        raise
    except FileNotFoundError as error:
        raise unreadable(path, error) from error
    except Exception as error:  # decoders raise all kinds of errors on damaged data
        raise InputError(
            f"{path} is no image that can be read: {error}",
            hint="it may be cut off or damaged; open it in an image viewer to check",
        ) from error


def place_mask(mask: Array, preprocess: Preprocess, target: Size, beside: int) -> Array:
    """Return a mask as its picture is placed in another, whose other pixels become `beside`."""
    from PIL import Image

    place = placement(preprocess, (mask.shape[0], mask.shape[1]), target)
    part = (place.left, place.top, place.left + place.part[1], place.top + place.part[0])
    image = Image.fromarray(np.asarray(mask, np.uint8))
    inner = image.resize(place.inner[::-1], Image.Resampling.NEAREST, box=part)
    placed = np.full(target, beside, np.uint8)
    rows = slice(place.down, place.down + place.inner[0])
    placed[rows, place.across : place.across + place.inner[1]] = np.asarray(inner)
    return placed


def _to_eight_bits(image: Image.Image) -> Image.Image:
    from PIL import Image

    if not image.mode.startswith("I"):
        return image
    # 16-bit grey: Pillow's own conversion clips at 255 instead of scaling.
    wide = np.asarray(image).astype(np.int64)
    return Image.fromarray(np.clip(wide >> 8, 0, 255).astype(np.uint8))


def _resize(image: Image.Image, preprocess: Preprocess, width: int, height: int) -> Image.Image:
    from PIL import Image

    if image.size == (width, height):
        return image
    place = placement(preprocess, (image.height, image.width), (height, width))
    part = (place.left, place.top, place.left + place.part[1], place.top + place.part[0])
    inner = image.resize(place.inner[::-1], Image.Resampling.BILINEAR, box=part)
    if place.inner == place.target:
        return inner
    fill = round(preprocess.fill)
    padded = Image.new(image.mode, (width, height), (fill,) * preprocess.channels)
    padded.paste(inner, (place.across, place.down))
    return padded


def _store(values: npt.NDArray[np.float64], spec: TensorSpec) -> Array:
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind not in "iu":
        return values.astype(dtype)
    if spec.quantization is not None:
        if len(spec.quantization.scales) != 1:
            raise InputError(
                f"the input {spec.name} is quantised per channel, which images do not support",
                hint="prepare the tensor yourself and hand it over as .npy",
            )
        values = values / spec.quantization.scales[0] + spec.quantization.zero_points[0]
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values), limits.min, limits.max).astype(dtype)


def _refuse_huge(path: Path, pixels: int) -> None:
    if pixels > _LARGEST_IMAGE_PIXELS:
        raise _too_large(path)


def _too_large(path: Path) -> InputError:
    return InputError(
        f"{path} unpacks to more pixels than edgekit decodes",
        hint=f"scale it down below {_LARGEST_IMAGE_PIXELS // 1_000_000} megapixels first",
    )
