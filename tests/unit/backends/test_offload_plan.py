"""What is offloaded: the command line before the project before the board."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.profiles import LINUX_BOARD, write_profile

from edgekit.backends import registry
from edgekit.backends.measurements import Measured, keep_measurement
from edgekit.backends.plan import plan_offload, selection_of, twin_of
from edgekit.base.errors import EdgekitError, ProfileError
from edgekit.base.tvm_compat import load_tvm
from edgekit.profiles.board import Board, parse_board
from edgekit.profiles.offload import AUTO, ONLY_MEASURED, OffloadSettings, ProjectOffload, Rates
from edgekit.profiles.reader import load_profile

BACKENDS = """\
from support.offloading import ToyBackend
from edgekit.backends.base import Option

options = {
    "threads": Option(1, "how many threads"),
    "mode": Option("fast", "how to compute", ("fast", "exact")),
    "limit": Option(0.5, "a number"),
    "packed": Option(True, "a flag"),
}
anywhere = ToyBackend("anywhere", options=options)
elsewhere = ToyBackend("elsewhere", architectures=("x86_64",))
"""


@pytest.fixture(autouse=True)
def _installed_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with three backends, one of which can't be imported."""
    site = tmp_path / "site"
    info = site / "toys-2.0.dist-info"
    info.mkdir(parents=True)
    (site / "toys.py").write_text(BACKENDS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text(
        "[edgekit.backends]\nanywhere = toys:anywhere\nelsewhere = toys:elsewhere\n"
        "broken = toys_that_are_not_there:BACKEND\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    registry._foreign.cache_clear()
    yield
    registry._foreign.cache_clear()


@pytest.fixture
def board(tmp_path: Path) -> Board:
    text = LINUX_BOARD.replace('default = ["ncnn"]', "default = []")
    return load_profile(write_profile(tmp_path / "boards", "mine", text), "boards", parse_board)


def with_settings(board: Board, **settings: object) -> Board:
    return replace(
        board,
        offload=replace(board.offload, settings=OffloadSettings(**settings)),  # type: ignore[arg-type]
    )


def test_nothing_is_offloaded_unless_somebody_says_so(board: Board) -> None:
    assert plan_offload(board, ProjectOffload()).backends == ()


def test_a_default_of_the_board_that_this_edgekit_lacks_is_passed_over(board: Board) -> None:
    ahead = replace(board, offload=replace(board.offload, default=("cmsis-nn", "anywhere")))
    assert plan_offload(ahead, ProjectOffload()).backends == ("anywhere",)
    with pytest.raises(EdgekitError):
        plan_offload(ahead, ProjectOffload(), ("cmsis-nn",))


def test_the_command_line_goes_before_the_project_and_that_before_the_board(board: Board) -> None:
    by_board = replace(board, offload=replace(board.offload, default=("anywhere",)))
    project = ProjectOffload(backends=("anywhere",))
    assert plan_offload(by_board, ProjectOffload()).backends == ("anywhere",)
    assert plan_offload(by_board, replace(project, backends=())).backends == ()
    assert plan_offload(board, project).backends == ("anywhere",)
    assert plan_offload(board, project, ()).backends == ()


def test_options_and_rates_are_taken_name_by_name(board: Board) -> None:
    board = with_settings(
        board,
        rates={"call_us": 1.0, "copy_gb_s": 2.0},
        options={"anywhere": {"threads": 2, "mode": "exact"}},
    )
    project = ProjectOffload(
        settings=OffloadSettings({"copy_gb_s": 3.0}, {"anywhere": {"threads": 4}})
    )
    plan = plan_offload(board, project, ("anywhere",))
    assert plan.rates == Rates(call_us=1.0, copy_gb_s=3.0)
    load_tvm()  # so that torch is not loaded with it
    ((_, options),) = selection_of(plan).backends
    assert options == {"threads": 4, "mode": "exact", "limit": 0.5, "packed": True}


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("thread", 2, "did you mean threads?"),
        ("threads", "two", "a value such as 1"),
        ("threads", True, "a value such as 1"),
        ("mode", "fastest", "one of fast, exact"),
        ("packed", 1, "a value such as True"),
    ],
)
def test_an_option_that_a_backend_lacks_is_named(
    board: Board, option: str, value: object, hint: str
) -> None:
    load_tvm()
    board = with_settings(board, options={"anywhere": {option: value}})
    with pytest.raises(ProfileError, match=option) as caught:
        selection_of(plan_offload(board, ProjectOffload(), ("anywhere",)))
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("anywhre", "no backend 'anywhre'", "did you mean anywhere?"),
        ("elsewhere", "runs on x86_64", "allows ncnn, acl"),
        ("onednn", "can't offload to onednn", "allows ncnn, acl"),
        ("broken", "the package toys can't be loaded", "install the package again"),
    ],
)
def test_a_backend_that_can_t_be_had_is_one_sentence_and_a_hint(
    board: Board, name: str, said: str, hint: str
) -> None:
    with pytest.raises(EdgekitError) as caught:
        plan_offload(board, ProjectOffload(), (name,))
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")


def test_options_for_a_backend_that_nobody_knows_were_meant_for_another(board: Board) -> None:
    board = with_settings(board, options={"anywere": {"threads": 2}})
    assert plan_offload(board, ProjectOffload()).backends == ()
    with pytest.raises(ProfileError) as caught:
        plan_offload(board, ProjectOffload(), ("anywhere",))
    assert caught.value.hint == "did you mean anywhere?"


def test_what_was_measured_on_the_board_is_part_of_the_plan(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", "")
    record = Measured(
        "r", "mine", "anywhere", "1", 1.0, 2.0, True, "desk", "2026-01-01T00:00:00Z", "hardware"
    )
    keep_measurement(record)
    keep_measurement(replace(record, board="other", region="s"))
    assert plan_offload(board, ProjectOffload(), ("anywhere",)).measured == {"r": record}
    assert plan_offload(board, ProjectOffload()).measured == {}


def test_auto_takes_what_was_measured_to_be_faster_and_nothing_else(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", "")
    assert plan_offload(board, ProjectOffload(), AUTO).backends == ()
    slower = Measured(
        "r", "mine", "anywhere", "1", 2.0, 1.0, True, "desk", "2026-01-01T00:00:00Z", "hardware"
    )
    keep_measurement(slower)
    assert plan_offload(board, ProjectOffload(), AUTO).backends == ()

    faster = replace(slower, region="s", library_us=0.5)
    keep_measurement(faster)
    plan = plan_offload(board, ProjectOffload(), AUTO)
    assert plan.backends == ("anywhere",)
    assert plan.rates == ONLY_MEASURED
    assert plan.measured == {"r": slower, "s": faster}
    assert plan_offload(board, ProjectOffload()).backends == ()


def test_auto_is_what_the_project_or_the_board_names_where_one_does(board: Board) -> None:
    named = replace(board, offload=replace(board.offload, default=("anywhere",)))
    assert plan_offload(named, ProjectOffload(), AUTO).backends == ("anywhere",)
    assert plan_offload(board, ProjectOffload(("anywhere",)), AUTO).backends == ("anywhere",)
    assert plan_offload(board, ProjectOffload(("anywhere",)), AUTO).rates == Rates()
    assert plan_offload(named, ProjectOffload(AUTO)).backends == ("anywhere",)


def test_what_a_twin_measured_counts_for_twins_alone(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", "")
    real = Measured(
        "r", "mine", "anywhere", "1", 2.0, 1.0, True, "desk", "2026-01-01T00:00:00Z", "hardware"
    )
    emulated = replace(
        real, board=twin_of(board), library_us=0.5, device="twin", measured_by="emulator"
    )
    keep_measurement(emulated)
    assert plan_offload(board, ProjectOffload(), ("anywhere",)).measured == {}
    assert plan_offload(board, ProjectOffload(), AUTO, twin=True).backends == ("anywhere",)
    keep_measurement(real)
    assert plan_offload(board, ProjectOffload(), ("anywhere",)).measured == {"r": real}
    assert plan_offload(board, ProjectOffload(), AUTO, twin=True).measured == {"r": emulated}
