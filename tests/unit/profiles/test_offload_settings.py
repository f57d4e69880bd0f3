"""What profiles and project files may say about backends."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.profiles import LINUX_BOARD, write_profile

from edgekit.base.errors import ProjectError
from edgekit.base.own_backends import own_backends
from edgekit.models.model import ModelSource
from edgekit.profiles.board import board_names, check_board, load_board, parse_board
from edgekit.profiles.offload import ProjectOffload
from edgekit.profiles.reader import load_profile
from edgekit.project.file import Project, choose_offload, read_project

SETTINGS = """
[offload.cost]
call_us = 0
copy_gb_s = 2.5

[offload.ncnn]
threads = 2
fp16_storage = true

[offload.somebody-elses]
mode = "fast"
"""


def test_a_board_sets_the_rule_s_numbers_and_backends_options(tmp_path: Path) -> None:
    path = write_profile(tmp_path, "mine", LINUX_BOARD + SETTINGS)
    settings = load_profile(path, "boards", parse_board).offload.settings
    assert settings.rates == {"call_us": 0.0, "copy_gb_s": 2.5}
    assert settings.options == {
        "ncnn": {"threads": 2, "fp16_storage": True},
        "somebody-elses": {"mode": "fast"},
    }


@pytest.mark.parametrize(
    ("right", "wrong", "key", "nearest"),
    [
        ("call_us = 0", "cal_us = 0", "offload.cost.cal_us", "call_us"),
        ("copy_gb_s = 2.5", "copy_gb_s = 0", "offload.cost.copy_gb_s", None),
        ("copy_gb_s = 2.5", "copy_gb_s = true", "offload.cost.copy_gb_s", None),
        ("copy_gb_s = 2.5", "copy_gb_s = nan", "offload.cost.copy_gb_s", None),
        ("threads = 2", "threads = [2]", "offload.ncnn.threads", None),
        ("threads = 2", "threads = inf", "offload.ncnn.threads", None),
        ('mode = "fast"', 'mode = "fa\\u0007st"', "offload.somebody-elses.mode", None),
        ('default = ["ncnn"]', 'default = ["ncnn"]\ncosts = 1', "offload.costs", "cost"),
    ],
)
def test_a_mistaken_setting_is_named(
    tmp_path: Path, right: str, wrong: str, key: str, nearest: str | None
) -> None:
    text = (LINUX_BOARD + SETTINGS).replace(right, wrong, 1)
    (problem,) = check_board(write_profile(tmp_path, "mine", text))
    assert (problem.key, problem.nearest) == (key, nearest)


def test_no_linux_board_builds_a_library_that_nobody_asked_for() -> None:
    for board in map(load_board, board_names()):
        assert set(board.offload.allowed) <= own_backends().keys()
        if board.kind != "baremetal":
            assert board.offload.default == ()


PROJECT = """\
schema = 1
model = "net.onnx"

[offload]
backends = ["ncnn", "my-own"]
force = ["conv2d"]
never = ["/head/Conv_3", "soft*"]

[offload.cost]
tvm_gmac_s = 1

[offload.ncnn]
threads = 1
"""


def _project(folder: Path, text: str) -> Project:
    file = folder / "edgekit.toml"
    file.write_text(text, encoding="utf-8")
    return read_project(file)


def _source(path: Path) -> ModelSource:
    return ModelSource(path, "onnx", "a" * 64)


def test_what_a_project_forces_and_forbids_is_about_its_own_model(tmp_path: Path) -> None:
    project = _project(tmp_path, PROJECT)
    own = choose_offload(project, _source(tmp_path / "net.onnx"))
    assert own.backends == ("ncnn", "my-own")
    assert (own.force, own.never) == (("conv2d",), ("/head/Conv_3", "soft*"))
    assert own.settings.rates == {"tvm_gmac_s": 1.0}
    assert own.settings.options == {"ncnn": {"threads": 1}}

    other = choose_offload(project, _source(tmp_path / "other.onnx"))
    assert other.backends == own.backends
    assert other.settings == own.settings
    assert (other.force, other.never) == ((), ())


def test_a_project_without_the_table_leaves_it_to_the_board(tmp_path: Path) -> None:
    project = _project(tmp_path, "schema = 1\n")
    assert choose_offload(project, _source(tmp_path / "net.onnx")) == ProjectOffload()
    assert choose_offload(None, _source(tmp_path / "net.onnx")).backends is None


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('"my-own"]', '"My Own"]', "offload.backends"),
        ("never", "nevr", "did you mean never?"),
        ('"conv2d"', "3", "offload.force"),
    ],
)
def test_a_mistake_in_the_table_is_named(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    with pytest.raises(ProjectError) as caught:
        _project(tmp_path, PROJECT.replace(right, wrong, 1))
    assert said in "\n".join(caught.value.details)  # beside the model, which is missing too
