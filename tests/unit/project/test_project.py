from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.building import write_model

from edgekit.base.errors import EdgekitError, ProfileError, ProjectError, UsageError
from edgekit.models.ends import NO_ENDS
from edgekit.project.devices import SshEntry
from edgekit.project.file import (
    choose_board,
    choose_model,
    find_project,
    init_project,
    read_project,
)
from edgekit.project.workspace import open_workspace

FULL = """\
schema = 1
model = "models/net.onnx"
board = "rpi4"

[shapes]
"input:0" = [1, 3, 224, 224]

[constants]
axes = [1, 2]
ratio = 0.5
flag = true
matrix = [[1, 2], [3, 4]]
table = "table.npy"

[preprocess.image]
layout = "NCHW"
mean = [0.5, 0.5, 0.5]

[cmsis_nn]
path = "third-party/CMSIS"

[devices.kitchen]
board = "rpi4"
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "edgekit.toml"
    file.write_text(text, encoding="utf-8")
    return file


def problems_of(folder: Path, text: str) -> str:
    with pytest.raises(ProjectError) as caught:
        read_project(write(folder, text))
    assert caught.value.hint
    return "\n".join([caught.value.message, *caught.value.details])


def test_everything_a_project_can_say(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.arange(3, dtype=np.uint8))

    project = read_project(write(tmp_path, FULL))

    assert project.model == tmp_path / "models" / "net.onnx"
    assert project.board == "rpi4"
    assert project.shapes == {"input:0": (1, 3, 224, 224)}
    assert {name: (str(a.dtype), a.tolist()) for name, a in project.constants.items()} == {
        "axes": ("int64", [1, 2]),
        "ratio": ("float32", 0.5),
        "flag": ("bool", True),
        "matrix": ("int64", [[1, 2], [3, 4]]),
        "table": ("uint8", [0, 1, 2]),
    }
    assert project.ends.preprocess["image"].layout == "NCHW"
    assert project.devices == {"kitchen": SshEntry("kitchen", "rpi4")}
    assert project.library_paths["cmsis-nn"] == tmp_path / "third-party" / "CMSIS"


def test_every_relative_path_starts_from_the_file_wherever_edgekit_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "project" / "below"
    elsewhere.mkdir(parents=True)
    np.save(project / "table.npy", np.arange(3))
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("HOME", "/home/user")
    text = (
        FULL
        + """
key = "keys/id_ed25519"
host = "10.0.0.5"

[devices.home]
board = "rpi4"
host = "10.0.0.6"
key = "~/.ssh/id"

[store]
url = "{url}"
"""
    )
    stores = {
        "sqlite:///runs.db": f"sqlite:///{project}/runs.db",
        "sqlite:///../runs.db?timeout=3": f"sqlite:///{project}/../runs.db?timeout=3",
        "sqlite:////srv/runs.db": "sqlite:////srv/runs.db",
        "sqlite:///~/runs.db": "sqlite:////home/user/runs.db",
        "postgresql://me@lab/runs?sslmode=verify-full&sslrootcert=lab.pem&sslkey=/k": (
            f"postgresql://me@lab/runs?sslmode=verify-full&sslrootcert={project}/lab.pem&sslkey=/k"
        ),
        "postgresql://me@lab/runs?sslrootcert=system": (
            "postgresql://me@lab/runs?sslrootcert=system"
        ),
    }
    for url, meant in stores.items():
        write(project, text.replace("{url}", url))
        found = find_project(elsewhere)
        assert found is not None
        assert found.store == meant
        assert {name: device.key for name, device in found.devices.items()} == {
            "kitchen": str(project / "keys/id_ed25519"),
            "home": "/home/user/.ssh/id",
        }
        assert found.model == project / "models/net.onnx"
        assert found.constants["table"].tolist() == [0, 1, 2]
        assert found.library_paths["cmsis-nn"] == project / "third-party/CMSIS"


def test_the_smallest_project(tmp_path: Path) -> None:
    project = read_project(write(tmp_path, "schema = 1\n"))

    assert (project.model, project.board, project.devices) == (None, None, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('schema = 1\nmodle = "a"\n', ":2: modle: found a key that means nothing here"),
        ('schema = 1\nmodle = "a"\n', "did you mean model?"),
        ("schema = 2\n", ":1: schema: found 2"),
        ('board = "rpi4"\n', "schema: found nothing"),
        ("schema = 1\nmodel = 5\n", ":2: model: found 5"),
        ('schema = 1\nboard = "../x"\n', ":2: board: found"),
        ("schema = 1\n[shapes]\nx = [1, 0]\n", ":3: shapes.x"),
        ("schema = 1\n[shapes]\nx = [true]\n", ":3: shapes.x"),
        ('schema = 1\n[shapes]\nx = "1,a"\n', ":3: shapes.x"),
        ("schema = 1\nshapes = 3\n", ":2: shapes: found 3"),
        ("schema = 1\n[constants]\nx = [[1], [1, 2]]\n", ":3: constants.x"),
        ('schema = 1\n[constants]\nx = "a.txt"\n', ":3: constants.x"),
        ("schema = 1\n[preprocess]\nx = 1\n", ":3: preprocess.x"),
        ("schema = 1\n[devices.a]\n", "devices.a.board: found nothing"),
        ('schema = 1\n[devices.a]\nboard = "x"\nhots = 1\n', ":4: devices.a.hots"),
        ("schema = 1\n[devices]\na = 1\n", ":3: devices.a"),
        ('schema = 1\n[devices."a/b"]\nboard = "x"\n', ":2: devices.a/b"),
        ("schema = \n", "line 1"),
        ("schema = 1\nschema = 1\n", "line 2"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, expected: str, tmp_path: Path) -> None:
    assert expected in problems_of(tmp_path, text)


def test_missing_files_and_boards_are_told_with_all_other_mistakes(tmp_path: Path) -> None:
    (tmp_path / "edgekit.toml").write_text(
        'schema = 1\nmodel = "nett.onnx"\nboard = "rpi44"\ncolour = 3\n'
        '[constants]\naxes = "none.npy"\n[devices.pi]\nboard = "nobord"\nhost = "pi"\n'
    )
    with pytest.raises(ProjectError) as caught:
        find_project(tmp_path)

    told = "\n".join(caught.value.details)
    for said in ("nett.onnx", "did you mean rpi4?", "colour", "none.npy", "devices.pi.board"):
        assert said in told
    assert len(caught.value.details) == 5


def test_what_is_named_and_missing_is_told_at_once_when_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "edgekit.toml").write_text('schema = 1\nmodel = "no.onnx"\nboard = "nobord"\n')
    data = open_workspace(tmp_path)
    for work in (lambda: data.board(), lambda: data.model(None, {}, {})):
        with pytest.raises(ProjectError) as caught:
            work()
        assert len(caught.value.details) == 2
    assert data.board("rpi4").name == "rpi4", "a command with a board of its own needs none here"


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    told = problems_of(tmp_path, "schema = 1\nmodel = 5\nbord = 3\n[shapes]\nx = []\n")

    assert "3 problems" in told
    assert all(line in told for line in (":2:", ":3:", ":5:"))


def test_mistakes_in_the_ends_of_a_model_and_in_devices_are_told_with_all_others(
    tmp_path: Path,
) -> None:
    ends = '[preprocess.image]\nmeann = 0\nscale = "a"\n[postprocess]\ntask = "classes"\ntop = 0\n'
    told = problems_of(tmp_path, f"schema = 1\nboard = 5\n{ends}[devices.x]\n")

    assert "6 problems" in told
    assert all(f":{line}:" in told for line in (2, 3, 4, 5, 8, 9)), told


@given(st.text())
def test_any_text_is_a_project_or_an_error_with_a_hint(text: str) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        file = Path(folder) / "edgekit.toml"
        file.write_bytes(b"schema = 1\n" + text.encode("utf-8", "surrogatepass"))
        try:
            read_project(file)
        except EdgekitError as error:
            assert error.hint


def test_the_nearest_project_file_above_is_found(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    write(tmp_path, 'schema = 1\nboard = "local"\n')

    found = find_project(inner)
    assert found is not None
    assert found.path == tmp_path / "edgekit.toml"

    write(tmp_path / "a", 'schema = 1\nboard = "rpi4"\n')
    nearer = find_project(inner)
    assert nearer is not None
    assert nearer.board == "rpi4"


def test_the_search_stops_at_the_root_of_the_repository(tmp_path: Path) -> None:
    write(tmp_path, "schema = 1\n")
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "a").mkdir()

    assert find_project(repository / "a") is None


def test_the_option_wins_over_the_project_for_the_board(tmp_path: Path) -> None:
    project = read_project(write(tmp_path, 'schema = 1\nboard = "rpi4"\n'))

    assert choose_board(project) == "rpi4"
    with pytest.raises(UsageError, match="no board"):
        choose_board(None)


def test_init_writes_what_can_be_read_back_and_never_overwrites(tmp_path: Path) -> None:
    project = init_project(tmp_path)

    assert (project.model, project.board) == (None, "local")
    with pytest.raises(UsageError, match="exists already"):
        init_project(tmp_path)
    assert init_project(tmp_path, board="rpi4", force=True).board == "rpi4"


def test_init_refuses_a_board_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProfileError):
        init_project(tmp_path, board="rpi44")

    assert not (tmp_path / "edgekit.toml").exists()


def test_preprocessing_belongs_to_the_projects_own_model(tmp_path: Path) -> None:
    text = 'schema = 1\nmodel = "net.onnx"\n[preprocess.x]\nlayout = "NCHW"\n'
    for name in ("net.onnx", "other.onnx"):
        write_model(tmp_path / name)
    project = read_project(write(tmp_path, text))

    own = choose_model(project, tmp_path / "." / "net.onnx", {}, {})
    other = choose_model(project, tmp_path / "other.onnx", {}, {})

    assert set(own.ends.pictures) == {"x"}
    assert other.ends == choose_model(None, tmp_path / "net.onnx", {}, {}).ends == NO_ENDS
    assert own.sha256 != choose_model(None, tmp_path / "net.onnx", {}, {}).sha256
