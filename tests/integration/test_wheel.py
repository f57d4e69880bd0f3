"""What is published works away from the checkout: the wheel, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import tomli
from onnx import helper
from support.onnx_models import onnx_model
from support.source import ROOT

from edgekit.version import __version__


@dataclass(frozen=True)
class Built:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The wheel is built from the source distribution, so a file missing there shows."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return Built(wheel, sdist)


def profiles_in_checkout(kind: str) -> set[str]:
    return {f"edgekit/{kind}/{path.name}" for path in (ROOT / kind).glob("*.toml")}


def test_the_wheel_holds_the_package_and_its_profiles(built: Built) -> None:
    names = set(zipfile.ZipFile(built.wheel).namelist())
    sources = {
        str(path.relative_to(ROOT)) for path in (ROOT / "edgekit").rglob("*.py") if path.is_file()
    }

    assert built.wheel.name == f"edgekit-{__version__}-py3-none-any.whl"
    assert sources <= names
    assert "edgekit/py.typed" in names
    assert {"edgekit/verbs/export/template/src/main.cc", "edgekit/agent/src/npy.cc"} <= names
    assert "edgekit/twin/guest/systemd/sshd.service" in names
    assert "edgekit/boards/local.toml" in profiles_in_checkout("boards") <= names
    assert "edgekit/toolchains/host.toml" in profiles_in_checkout("toolchains") <= names
    assert "edgekit/libraries/ncnn.toml" in profiles_in_checkout("libraries") <= names


def test_the_wheel_holds_nothing_else(built: Built) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    info = f"edgekit-{__version__}.dist-info/"

    assert not [name for name in names if not name.startswith(("edgekit/", info))]
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert f"{info}licenses/LICENSE" in names


def test_the_source_distribution_can_be_tested_and_set_up(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {
        "LICENSE",
        "Makefile",
        "README.md",
        "pyproject.toml",
        "scripts/setup",
        "boards/local.toml",
        "libraries/ncnn.toml",
        "toolchains/host.toml",
        "tests/integration/test_wheel.py",
    } <= names


def test_pytest_finds_the_plugin_in_the_wheel(built: Built) -> None:
    info = f"edgekit-{__version__}.dist-info"
    entries = zipfile.ZipFile(built.wheel).read(f"{info}/entry_points.txt").decode()

    assert "[pytest11]\nedgekit = edgekit.testing.pytest_plugin\n" in entries


def test_the_wheel_asks_for_tvm_as_a_pinned_pair(built: Built) -> None:
    metadata = zipfile.ZipFile(built.wheel).read(f"edgekit-{__version__}.dist-info/METADATA")
    wanted = [line for line in metadata.decode().splitlines() if "apache-tvm" in line]
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]

    pinned = [line for line in project["dependencies"] if line.startswith("apache-tvm")]
    assert sorted(line.removeprefix("Requires-Dist: ") for line in wanted) == sorted(pinned)
    assert all("==" in line for line in pinned)


@dataclass(frozen=True)
class Installed:
    """An environment that holds the wheel and its dependencies, and an empty home."""

    folder: Path
    environment: Mapping[str, str]
    elsewhere: Path

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._call(self.folder / "bin" / "python", arguments, self.environment)

    def edgekit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._call(self.folder / "bin" / "edgekit", arguments, self.environment)

    def pip(self, *arguments: str) -> None:
        """Run with the home of the user who runs the tests: pip's settings and its cache."""
        command = ("-m", "pip", "--disable-pip-version-check", "--quiet", *arguments)
        result = self._call(self.folder / "bin" / "python", command, _without_python())
        assert result.returncode == 0, result.stderr

    def _call(
        self, program: Path, arguments: tuple[str, ...], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments],
            env=environment,
            cwd=self.elsewhere,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )


def _without_python() -> dict[str, str]:
    ours = ("PYTHON", "VIRTUAL_ENV", "EDGEKIT_", "COV_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("environment")
    home = tmp_path_factory.mktemp("home")
    venv.create(folder, with_pip=True, symlinks=True)
    environment = _without_python() | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "PATH": f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
    }
    machine = Installed(folder, environment, tmp_path_factory.mktemp("elsewhere"))
    machine.pip("install", str(built.wheel))
    return machine


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    made = onnx_model(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["y"]),
        ],
        {"x": (1, 3, 8, 8)},
        ["y"],
        {"w": random.standard_normal((4, 3, 3, 3)).astype("float32")},
    )
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    onnx.save(made, path)
    return path


@pytest.mark.slow
def test_an_installed_wheel_does_the_whole_walk(
    built: Built, installed: Installed, model: Path
) -> None:
    """One test, in the order in which a newcomer does it: installing takes most of the time."""
    assert installed.edgekit("--help").stdout.startswith("Usage: edgekit ")
    assert installed.edgekit("--version").stdout.split() == ["edgekit", __version__]
    assert installed.python("-m", "edgekit", "--version").stdout.split()[-1] == __version__

    boards = installed.edgekit("boards")
    assert boards.returncode == 0, boards.stderr
    assert {Path(name).stem for name in profiles_in_checkout("boards")} <= set(
        boards.stdout.split()
    )

    libraries = installed.edgekit("toolchains", "build", "local", "--library", "nccn")
    assert "did you mean ncnn?" in libraries.stderr

    doctor = installed.edgekit("doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr

    pinned = installed.python(
        "-c",
        "from importlib.metadata import version\n"
        "from edgekit.base.tvm_compat import PINNED\n"
        "print(all(version(name) == wanted for name, wanted in PINNED))",
    )
    assert pinned.stdout == "True\n", pinned.stderr
    installed.pip("check")

    without_extra = installed.edgekit("deploy", str(model), "--board", "local", "--json")
    assert without_extra.returncode == 5, without_extra.stdout + without_extra.stderr
    assert "edgekit[onnx]" in json.loads(without_extra.stdout)["error"]["hint"]

    installed.pip("install", f"{built.wheel}[onnx]")
    installed.pip("check")
    deployed = installed.edgekit("deploy", str(model), "--board", "local", "--json")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    report = json.loads(deployed.stdout)
    assert report["verification"]["passed"]
    assert report["bench"]["runs"] > 0
    assert not report["build"]["from_cache"]

    again = installed.edgekit("build", str(model), "--board", "local", "--json")
    assert json.loads(again.stdout)["from_cache"]
    loaded = installed.python("-c", "import edgekit; print(edgekit.__file__)")
    assert loaded.stdout.startswith(str(installed.folder))
