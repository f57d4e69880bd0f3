"""ONNX node cases of fragile kinds, run by the agent on an emulated Raspberry Pi.

`make node-tests-twin` runs a case of every operator.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.needs import TWIN, needs
from support.onnx_nodes import verdicts
from support.twins import twins_in

from benchmarks.onnx_nodes import BUILT, Offload, judge, load_cases
from benchmarks.onnx_on_twin import run_on_twin
from edgekit.base.errors import DeviceError
from edgekit.bundle.folder import describe_file, open_bundle, write_manifest

pytestmark = [pytest.mark.slow, needs(*TWIN)]

FRAGILE = {
    "test_top_k": "right",
    "test_top_k_same_values_2d": "right",
    "test_top_k_uint64": "right",
    "test_argmax_default_axis_example": "right",
    "test_reduce_max_empty_set": "right",
    "test_reduce_sum_empty_set_non_reduced_axis_zero": "right",
    "test_split_zero_size_splits_opset18": "right",
    "test_compress_0": "right",
    "test_clip": "right",
    "test_less": "right",
    "test_not_2d": "right",
    "test_isnan_float16": "right",
    "test_cast_FLOAT_to_BFLOAT16": "right",
    "test_cast_BFLOAT16_to_FLOAT": "right",
    "test_max_uint64": "right",
    "test_mod_int64_fmod": "right",
    "test_where_long_example": "right",
    "test_equal_string": "refused",
    "test_nonzero_example": "right",
    "test_unique_length_1": "right",
    "test_nonmaxsuppression_single_box": "right",
}
"""Sorts, tensors without elements, scalars, booleans, halves, wide integers, sizes that the data
decides, and what no device can compute: the verdict of each."""


def test_fragile_node_cases_come_out_on_a_twin_as_on_this_machine(
    tmp_path: Path, twin_cache: Path
) -> None:
    with twins_in(twin_cache):
        found = verdicts(tmp_path, "--twin", "--filter", f"^({'|'.join(FRAGILE)})$")
    assert found == FRAGILE


def test_a_model_that_kills_its_process_costs_only_its_own_result(
    tmp_path: Path, twin_cache: Path
) -> None:
    (case,) = load_cases("^test_abs$")
    for name in ("first", "second", "third"):
        assert judge(case, Offload(bundles=tmp_path / name)) == (BUILT, "", 0)
    folders = [tmp_path / name / case.name for name in ("first", "second", "third")]
    make_deadly(folders[1] / "bundle")
    with twins_in(twin_cache):
        first, second, third = run_on_twin(folders)
    assert isinstance(second, DeviceError)
    assert "crashed on onnx-nodes" in second.message
    (expected,) = case.data_sets[0][1]
    for result in (first, third):
        assert isinstance(result, list)
        np.testing.assert_array_equal(result[0], expected)


def make_deadly(folder: Path) -> None:
    """Give a bundle a library that aborts when it is loaded."""
    bundle = open_bundle(folder)
    source = folder.with_name("deadly.c")
    source.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void end(void) { abort(); }\n"
    )
    compiler = ["aarch64-linux-gnu-g++", "-x", "c", "-shared", "-fPIC"]
    subprocess.run([*compiler, "-o", str(bundle.library), str(source)], check=True)
    library = describe_file(folder, bundle.library.name, "library")
    rest = [file for file in bundle.manifest.files if file.role != "library"]
    write_manifest(folder, replace(bundle.manifest, files=(library, *rest)))
