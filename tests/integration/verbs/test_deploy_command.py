"""deploy: from a model to a verified, measured bundle on this machine."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.building import request_for, run_edgekit, write_model

from edgekit.base.arrays import Array
from edgekit.base.errors import VerificationError
from edgekit.base.events import SILENT, Events
from edgekit.bundle.folder import Bundle, open_bundle
from edgekit.devices.base import RunResult
from edgekit.devices.local.device import LocalDevice, LocalSession
from edgekit.verbs.deploy import deploy


def test_deploy_builds_verifies_and_measures(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx")

    done = run_edgekit("deploy", "model.onnx", "--board", "local", folder=tmp_path)

    assert done.code == 0, done.err
    for words in ("verified against", "onnxruntime", "max error", "median latency", "build/model-"):
        assert words in done.out
    assert open_bundle(tmp_path / "build/model-local").manifest.model.name == "model"


def test_deploy_reports_all_of_it_to_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    write_model(tmp_path / "model.onnx")
    arguments = ("deploy", "model.onnx", "--board", "local", "-o", "out", "--json")

    first, again = (run_edgekit(*arguments, folder=tmp_path) for _ in range(2))

    report, cached = json.loads(first.out), json.loads(again.out)
    assert report["verification"]["passed"] is True
    assert report["bench"]["runs"] >= 10
    assert "samples" not in report["bench"]
    assert [output["name"] for output in report["verification"]["outputs"]] == ["features"]
    names = [sample["name"] for sample in report["verification"]["samples"]]
    assert names == ["random", "zeros", "largest", "nan"]
    assert len(first.out.splitlines()) < 550
    assert (report["build"]["from_cache"], cached["build"]["from_cache"]) == (False, True)


def test_what_was_not_verified_or_measured_is_said_to_be_so(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx")
    words = ("deploy", "model.onnx", "--board", "local", "--no-verify", "--no-bench")

    shown = run_edgekit(*words, folder=tmp_path)
    report = json.loads(run_edgekit(*words, "--json", folder=tmp_path).out)

    assert shown.code == 0, shown.err
    assert "model is on local, not verified" in shown.out
    assert "latency" not in shown.out
    assert "error" not in shown.out
    assert (report["verification"], report["bench"], report["version"]) == (None, None, None)
    assert report["device"] == "local"


@pytest.mark.parametrize("keep", ["0", "-1", "101", "many"])
def test_at_least_the_current_version_is_kept(tmp_path: Path, keep: str) -> None:
    done = run_edgekit("deploy", "model.onnx", "--keep", keep, folder=tmp_path)

    assert done.code == 2
    assert "--keep" in done.err


def test_deploy_takes_model_and_board_from_the_project_file(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx")
    (tmp_path / "edgekit.toml").write_text('schema = 1\nmodel = "model.onnx"\nboard = "local"\n')

    done = run_edgekit("deploy", folder=tmp_path)

    assert done.code == 0, done.err
    assert "verified" in done.out


def test_without_a_model_both_ways_on_are_named(tmp_path: Path) -> None:
    done = run_edgekit("deploy", "--board", "local", folder=tmp_path)

    assert done.code == 2
    assert "edgekit init" in done.err
    assert "name the model file" in done.err


def test_a_board_that_is_not_here_can_be_built_for_only(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx")

    linux = run_edgekit("deploy", "model.onnx", "--board", "rpi4", folder=tmp_path)
    bare = run_edgekit("deploy", "model.onnx", "--board", "mps2-an386", folder=tmp_path)

    assert linux.code == 8
    assert "edgekit device add NAME --board rpi4" in linux.err
    assert bare.code == 8
    assert "edgekit device add NAME --board mps2-an386 --port" in bare.err
    assert not (tmp_path / "build").exists()


def test_an_unknown_device_is_refused_with_the_nearest(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx")

    done = run_edgekit(
        "deploy", "model.onnx", "--board", "local", "--device", "locl", folder=tmp_path
    )

    assert done.code == 2
    assert "did you mean local?" in done.err


class DriftingSession(LocalSession):
    def run_all(self, samples: Iterable[Mapping[str, Array]]) -> Generator[RunResult, None, None]:
        for result in super().run_all(samples):
            wrong = {name: array + 1 for name, array in result.outputs.items()}
            yield RunResult(wrong, result.seconds)


class DriftingDevice(LocalDevice):
    """A device whose numbers are off: this machine, with one added to every output."""

    @contextmanager
    def opened(
        self, bundle: Bundle, *, purpose: str = "run", events: Events = SILENT
    ) -> Iterator[LocalSession]:
        yield DriftingSession(self, bundle, events)


def test_wrong_numbers_stop_a_deployment(tmp_path: Path) -> None:
    request = request_for(write_model(tmp_path / "model.onnx"))

    with pytest.raises(VerificationError) as caught:
        deploy(request, DriftingDevice(), tmp_path / "out")

    assert "is not what onnxruntime" in caught.value.message
    assert "768 of 1,024 elements" in caught.value.details[0]
    proven = deploy(request, LocalDevice(), tmp_path / "out").verification
    assert proven is not None
    assert proven.passed
