from __future__ import annotations

from pathlib import Path

import tomli
from packaging.requirements import Requirement

from edgekit.cross.sources.steps import TOOLS
from edgekit.doctor import OPTIONAL_PACKAGES


def test_the_doctor_asks_for_what_the_extras_install() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomli.loads(pyproject.read_text())["project"]["optional-dependencies"]
    asked = {package.requirement for package in OPTIONAL_PACKAGES}
    others = ("all", "offload", "postgres", "cmsis-nn")  # nothing that every user of a board lacks
    wanted = {need for name, needs in extras.items() if name not in others for need in needs}
    assert asked == wanted


def test_the_doctor_looks_for_the_programs_that_the_offload_extra_installs() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomli.loads(pyproject.read_text())["project"]["optional-dependencies"]

    assert [Requirement(need).name for need in extras["offload"]] == [tool for tool, _ in TOOLS]
