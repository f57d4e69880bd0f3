"""Outputs are written under their names."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.verbs.run import write_outputs

OUTPUTS = {
    "/model/Concat_output_0": np.arange(6, dtype="float32").reshape(2, 3),
    "file": np.array([1, 2]),
    "StatefulPartitionedCall:0": np.array(True),
}


def test_an_npz_has_the_outputs_own_names(tmp_path: Path) -> None:
    (file,) = write_outputs(OUTPUTS, tmp_path / "out.npz")
    with np.load(file) as found:
        assert set(found) == set(OUTPUTS)
        for name, value in OUTPUTS.items():
            np.testing.assert_array_equal(found[name], value)


def test_files_in_a_folder_have_safe_names(tmp_path: Path) -> None:
    files = write_outputs(OUTPUTS, tmp_path / "out")
    assert len({file.name for file in files}) == len(OUTPUTS)
    for file, value in zip(files, OUTPUTS.values(), strict=True):
        assert file.parent == tmp_path / "out"
        np.testing.assert_array_equal(np.load(file), value)
