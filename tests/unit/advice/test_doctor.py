from __future__ import annotations

import tomli
from packaging.requirements import Requirement
from support.source import ROOT

from edgekit.advice.doctor import OPTIONAL_PACKAGES, _needs
from edgekit.cross.sources.steps import TOOLS
from edgekit.profiles.board import load_board


def test_the_doctor_asks_for_what_the_extras_install() -> None:
    pyproject = ROOT / "pyproject.toml"
    extras = tomli.loads(pyproject.read_text())["project"]["optional-dependencies"]
    asked = {package.requirement for package in OPTIONAL_PACKAGES}
    # Nothing that every user of a board lacks.
    others = (
        "all",
        "beside",
        "offload",
        "postgres",
        "fabric",
        "cluster",
        "cmsis-nn",
        "coco",
        "cuda",
        "ethos-u",
        "keras",
        "mlperf",
        "nvml",
        "tensorflow",
        "tensorrt",
        "testing",
        "wasm",
    )
    wanted = {need for name, needs in extras.items() if name not in others for need in needs}
    assert asked == wanted


def test_the_doctor_looks_for_the_programs_that_the_offload_extra_installs() -> None:
    pyproject = ROOT / "pyproject.toml"
    extras = tomli.loads(pyproject.read_text())["project"]["optional-dependencies"]

    assert [Requirement(need).name for need in extras["offload"]] == [tool for tool, _ in TOOLS]


def test_a_board_whose_gpu_runs_models_needs_nvidias_packages_and_no_other_does() -> None:
    assert list(_needs(load_board("jetson-orin"))) == []
    (check,) = _needs(load_board("jetson-orin-jp7"))
    assert check.required
    assert check.ok == (check.found != "not installed")
    assert check.fix == "pip install 'edgekit[cuda]'"
