from __future__ import annotations

from pathlib import Path

import tomli

from edgekit.doctor import OPTIONAL_PACKAGES


def test_the_doctor_asks_for_what_the_extras_install() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomli.loads(pyproject.read_text())["project"]["optional-dependencies"]
    asked = {package.requirement for package in OPTIONAL_PACKAGES}
    wanted = {need for name, needs in extras.items() if name != "all" for need in needs}
    assert asked == wanted
