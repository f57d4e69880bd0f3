"""Random quantised networks with branches and residuals, through the arena, are LiteRT's exactly.

Kernels that work in place, buffers that share memory and values that are needed later meet here.
"""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.c_builds import SANITIZED, built_tree, make
from support.random_int8 import Growing
from support.tflite_models import tflite_bytes, write_model


@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    data=st.data(),
    shape=st.tuples(st.just(1), st.integers(2, 9), st.integers(2, 9), st.integers(1, 4)),
    length=st.integers(1, 9),
)
def test_random_networks_are_litert_s_to_the_last_step(
    tmp_path: Path, data: st.DataObject, shape: tuple[int, ...], length: int
) -> None:
    network = Growing(data, shape)
    for _ in range(length):
        network.grow()
    ends = network.ends()
    source = write_model(tmp_path, tflite_bytes(network.tensors, network.operators, ["x"], ends))
    folder = tmp_path / f"c{len(list(tmp_path.iterdir()))}"
    built = built_tree(source.path, folder)
    assert not any(step.reason for step in built.compiled.plan.program.steps)
    made = make(folder, "test", f"CFLAGS={' '.join(SANITIZED)}")
    assert made.returncode == 0, made.stdout + made.stderr
    errors = re.findall(r"worst error (\S+):", made.stdout)
    assert errors == ["0"] * len(ends), made.stdout
