"""The pytest plugin as users load it: a pytest of its own, a real model, this machine as device."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from support.building import write_model
from support.source import ROOT

pytest_plugins = ["pytester"]

MEASURING = '''
import dataclasses, pytest
from edgekit.devices.base import BenchPlan
from edgekit.verbs.bench import bench
from edgekit.verbs.recording import keep_bench

@pytest.fixture
def measured(edgekit_bundle, edgekit_device, edgekit_workspace):
    """Keep a real measurement so many times as slow, on a machine as busy as a test says."""
    with edgekit_device.open(edgekit_bundle) as session:
        real = bench(edgekit_bundle, session.session, BenchPlan(runs=30, seconds=0))

    def keep(factor, busy=False):
        samples = tuple(real.median * factor * (1 + step / 1e4) for step in range(40))
        report = dataclasses.replace(
            real, samples=samples, median=samples[20], busy=busy, throttled=None
        )
        kept = keep_bench(edgekit_bundle, report, "bench", edgekit_workspace.data.store)
        return dataclasses.replace(report, kept_as=kept)

    return keep
'''


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with a model, an edgekit that only the ini file configures, and a store."""
    monkeypatch.setenv("EDGEKIT_STORE", f"sqlite:///{pytester.path}/runs.db")
    write_model(pytester.path / "net.onnx")
    pytester.makeini("[pytest]\nedgekit_model = net.onnx\nedgekit_offload = none\n")
    return pytester


def test_a_bundle_is_built_once_and_verified_and_measured(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import pytest
        paths = set()

        def test_the_board(edgekit_board):
            assert edgekit_board.name == "local"

        @pytest.mark.parametrize("again", range(2))
        def test_the_numbers(edgekit_bundle, edgekit_device, assert_verified, again):
            paths.add(edgekit_bundle.path)
            with edgekit_device.open(edgekit_bundle) as session:
                assert_verified(session.verify())

        def test_the_time(edgekit_bundle, edgekit_device, assert_fast_enough):
            paths.add(edgekit_bundle.path)
            with edgekit_device.open(edgekit_bundle) as session:
                assert assert_fast_enough(session.bench(runs=10)) is None

        @pytest.mark.edgekit(model="net.onnx", offload="none")
        def test_a_marker(edgekit_bundle):
            paths.add(edgekit_bundle.path)

        def test_the_folders():
            assert len(paths) == 1
        """
    )

    result = run.runpytest_subprocess("--junit-xml=out.xml", "--strict-markers")

    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(
        ["*= edgekit =*", "*::test_the_time: * on local: median * the first run of its kind*"]
    )
    properties = ElementTree.parse(run.path / "out.xml").findall(".//testcase/properties/property")
    assert [found.get("name") for found in properties] == ["edgekit"]


def test_what_became_slower_than_an_earlier_run_fails_in_words(run: pytest.Pytester) -> None:
    run.makeconftest(MEASURING)
    run.makepyfile(
        """
        def test_best(measured, assert_fast_enough):
            assert assert_fast_enough(measured(1.0)) is None
            measured(1.6)
            assert assert_fast_enough(measured(1.04)).verdict == "slower"  # within 5 %
            assert_fast_enough(measured(1.5), against="best")

        def test_previous(measured, assert_fast_enough):
            measured(9.0)
            assert assert_fast_enough(measured(1.5), against="previous").verdict == "faster"
            assert_fast_enough(measured(1.8), within=0.3, against="previous")

        def test_busy(measured, assert_fast_enough):
            measured(1.0)
            assert_fast_enough(measured(1.0, busy=True))
        """
    )

    result = run.runpytest_subprocess("-rf")

    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            ">*assert_fast_enough(measured(1.5), against=*",
            "E*AssertionError: * on local is * slower, and 5.0 % was allowed",
            "E*the best earlier run: net on local, *: median *",
            "E*this run: net on local, *: median *",
            "E*median after / median before: * in 95 of 100 cases; 5.0 % more is allowed",
            "E*AssertionError: the runs can't be compared: the device of the second run was busy*",
            "*test_best*: net on local: 50.0 % slower; *",
        ]
    )
    result.stdout.no_fnmatch_line("*assertions.py*")


def test_wrong_numbers_fail_in_words(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import shutil
        import numpy as np
        from support.local_bundles import resealed

        def test_wrong(edgekit_bundle, edgekit_device, assert_verified, tmp_path):
            shutil.copytree(edgekit_bundle.path, tmp_path / "wrong")
            file = tmp_path / "wrong" / edgekit_bundle.manifest.vectors[0].outputs[0].file
            array = np.load(file)
            array[0, 1, 2, 3] += 1
            np.save(file, array)
            wrong = resealed(edgekit_bundle, tmp_path / "wrong")
            with edgekit_device.open(wrong) as session:
                assert_verified(session.verify())
        """
    )
    result = run.runpytest_subprocess("-o", f"pythonpath={ROOT / 'tests'}")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*AssertionError: what local computes for * is not what onnxruntime * computes",
            "E*: 1 of * elements are off by more than *",
            "E*hint: widen with *",
        ]
    )


@pytest.mark.parametrize(
    ("marker", "options", "said"),
    [
        ("model='gone.onnx'", (), "*gone.onnx*"),
        ("", ("--edgekit-model", "absent.onnx"), "*absent.onnx*"),
        ("", ("--edgekit-board", "no-such"), "*no-such*"),
        ("bord='local'", (), "the marker edgekit does not take bord"),
        ("'net.onnx'", (), "the marker edgekit does not take 'net.onnx'"),
    ],
)
def test_a_mistake_is_a_sentence_and_a_hint(
    run: pytest.Pytester, marker: str, options: tuple[str, ...], said: str
) -> None:
    run.makepyfile(
        f"""
        import pytest

        @pytest.mark.edgekit({marker})
        def test_it(edgekit_bundle):
            pass
        """
    )

    result = run.runpytest_subprocess(*options)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said, "hint: *"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_other_tests_pay_nothing_for_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_modules(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("edgekit")
            loaded = {name for name in sys.modules if name.split(".")[0] == "edgekit"}
            assert loaded <= {
                "edgekit", "edgekit.version", "edgekit.testing", "edgekit.testing.pytest_plugin"
            }
            assert not {"numpy", "tvm", "click", "onnx"} & set(sys.modules)
        """
    )

    pytester.runpytest_subprocess("-p", "no:hypothesispytest").assert_outcomes(passed=1)


def test_the_page_works_as_typed(run: pytest.Pytester) -> None:
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    first = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    (run.path / "test_model.py").write_text(first)

    result = run.runpytest_subprocess("--edgekit-model", "net.onnx")

    result.assert_outcomes(passed=2)


def test_it_can_be_turned_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(edgekit_bundle): pass")

    result = pytester.runpytest_subprocess("-p", "no:edgekit")

    result.stdout.fnmatch_lines(["*fixture 'edgekit_bundle' not found*"])
