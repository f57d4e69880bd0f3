"""A small bundle made without a compiler: everything about it is real but the library's code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.base.files import sha256_bytes
from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.bundle.folder import Bundle, describe_file, open_bundle, write_manifest, write_tensor
from edgekit.bundle.manifest import (
    SCHEMA_VERSION,
    BoardEntry,
    InputEntry,
    Kernel,
    Manifest,
    ModelEntry,
    OutputEntry,
    Region,
    ToolchainEntry,
    Versions,
)
from edgekit.bundle.manifest_oracle import OracleEntry
from edgekit.bundle.manifest_steps import LibraryStep
from edgekit.bundle.manifest_vectors import ExpectedEntry, LeftOut, VectorEntry
from edgekit.models.preprocess import Preprocess

IMAGE = TensorSpec("image", "uint8", (1, 4, 4, 3), Quantization((0.5,), (128,)))
MASK = TensorSpec("mask", "bool", (3,))
SCORES = TensorSpec("scores", "float32", (1, 2))
INPUTS = {
    "image": np.arange(48, dtype=np.uint8).reshape(IMAGE.shape),
    "mask": np.array([True, False, True]),
}
OUTPUTS = {"scores": np.array([[0.25, 0.75]], dtype=np.float32)}


def manifest_of(folder: Path) -> Manifest:
    files = (
        describe_file(folder, "model.so", "library"),
        describe_file(folder, "reference/random/input-0.npy", "reference-input"),
        describe_file(folder, "reference/random/input-1.npy", "reference-input"),
        describe_file(folder, "reference/random/output-0.npy", "reference-output"),
    )
    return Manifest(
        schema_version=SCHEMA_VERSION,
        edgekit_version="0.1.0",
        model=ModelEntry("tiny", "onnx", "0" * 64, "tiny.onnx"),
        board=BoardEntry("local", "local"),
        target='{"kind": "llvm"}',
        toolchain=ToolchainEntry("host", "cc 12.2.0"),
        versions=Versions("0.27.0", "0.1.14"),
        oracle=OracleEntry("onnxruntime", "1.31.1"),
        seed=7,
        inputs=(
            InputEntry(IMAGE, Preprocess("NHWC", std=(255.0,))),
            InputEntry(MASK, None),
        ),
        outputs=(OutputEntry(SCORES),),
        postprocess=None,
        vectors=(
            VectorEntry(
                "random",
                ("reference/random/input-0.npy", "reference/random/input-1.npy"),
                (ExpectedEntry("reference/random/output-0.npy", None),),
            ),
        ),
        left_out=(LeftOut("nan", "no input holds floats"),),
        regions=(Region("region-0", "ncnn", ("conv2d", "relu"), 90, 100, "pays"),),
        runners=(),
        kernels=(Kernel("fused_convolution_relu", "product"),),
        steps=(LibraryStep("conv", "kernel", ("conv", "relu"), "", 64),),
        arena=None,
        bare_metal=None,
        files=files,
        reproducible=True,
        reproducible_note="same bytes",
    )


def make_bundle(folder: Path) -> Bundle:
    folder.mkdir(parents=True)
    (folder / "model.so").write_bytes(b"\x7fELF" + bytes(range(256)) * 40)
    write_tensor(folder / "reference/random/input-0.npy", INPUTS["image"])
    write_tensor(folder / "reference/random/input-1.npy", INPUTS["mask"])
    write_tensor(folder / "reference/random/output-0.npy", OUTPUTS["scores"])
    write_manifest(folder, manifest_of(folder))
    return open_bundle(folder)


def rename_library(manifest: Manifest, path: str) -> Manifest:
    """The manifest with its library under another path, as a hostile one would say."""
    library, *others = manifest.files
    return replace(manifest, files=(replace(library, path=path), *others))


def sealed(document: dict[str, Any]) -> bytes:
    """A manifest document with the digest it ought to have, in the form edgekit writes."""
    body = {key: value for key, value in document.items() if key != "digest"}
    digest = sha256_bytes((json.dumps(body, indent=2) + "\n").encode())
    return (json.dumps({**body, "digest": digest}, indent=2) + "\n").encode()


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest as somebody would who also knows how to seal it."""
    file = folder / "manifest.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_bytes(sealed(document))
