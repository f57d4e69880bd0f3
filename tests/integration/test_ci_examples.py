"""examples/ci: files that the systems take by their schemas, and commands that work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.building import write_model
from support.junit import outcomes
from support.needs import CORTEX_M, needs
from support.source import ROOT

FOLDER = ROOT / "examples" / "ci"
PROGRAMS = Path(sys.executable).parent


def loaded(name: str) -> Any:
    import yaml

    return yaml.safe_load((FOLDER / name).read_text("utf-8"))


def checked(*command: str) -> None:
    done = subprocess.run(
        [PROGRAMS / command[0], *command[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs("ci-files")
@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("github.yml", ("vendor.github-workflows",)),
        ("gitlab-ci.yml", ("vendor.gitlab-ci", "--data-transform", "gitlab-ci")),
    ],
)
def test_a_pipeline_is_what_its_system_takes(name: str, schema: tuple[str, ...]) -> None:
    checked("check-jsonschema", "--builtin-schema", *schema, str(FOLDER / name))


@needs("ci-files")
def test_the_image_has_nothing_to_complain_about() -> None:
    checked("hadolint", str(FOLDER / "Dockerfile"))
    text = (FOLDER / "Dockerfile").read_text("utf-8")
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["1000"]


def commands_of_github() -> tuple[dict[str, str], list[str]]:
    workflow = loaded("github.yml")
    steps = [step["run"] for step in workflow["jobs"]["model"]["steps"] if "run" in step]
    return workflow["env"], [line for step in steps for line in step.splitlines()]


def commands_of_gitlab() -> tuple[dict[str, str], list[str]]:
    job = loaded("gitlab-ci.yml")["model"]
    return job["variables"], [*job["before_script"], *job["script"]]


def is_setup(line: str) -> bool:
    return "apt-get" in line or line.startswith("pip install")


@needs("ci-files")
def test_both_pipelines_run_the_same() -> None:
    (their, github), (its, gitlab) = commands_of_github(), commands_of_gitlab()

    assert [line.removeprefix("sudo ") for line in github] == gitlab
    assert sum(map(is_setup, gitlab)) == 3
    assert their.keys() == its.keys()


@pytest.mark.slow
@needs("ci-files", *CORTEX_M)
def test_the_commands_of_a_pipeline_work_twice(tmp_path: Path) -> None:
    variables, commands = commands_of_gitlab()
    shutil.copy(FOLDER / "test_model.py", tmp_path)
    write_model(tmp_path / variables["MODEL"])
    here = {
        name: value.replace("$CI_PROJECT_DIR", str(tmp_path)) for name, value in variables.items()
    }
    environment = {**os.environ, **here, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
    script = "\n".join(line for line in commands if not is_setup(line))

    def run() -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        assert re.search(r"test_speed: .* first run of its kind", run())
        assert "test_speed: model on mps3-an547 emulated: no difference beyond noise; " in run()
    finally:
        down = [PROGRAMS / "edgekit", "twin", "down", "--all"]
        subprocess.run(down, cwd=tmp_path, env=environment, check=True)
    assert outcomes(tmp_path / "reports" / "tests.xml") == {
        ("test_model", "test_numbers"): "passed",
        ("test_model", "test_speed"): "passed",
    }
    assert outcomes(tmp_path / "reports" / "matrix.xml") == {
        ("model.local", "none"): "passed",
        ("model.mps3-an547", "none"): "passed",
    }
    assert (tmp_path / ".edgekit" / "runs.db").is_file()
