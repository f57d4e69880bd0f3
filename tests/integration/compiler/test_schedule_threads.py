"""The same bits on one, two and four threads: no sum is split among cores."""

from __future__ import annotations

import hashlib

from support.building import script_on_threads

SCRIPT = """
import hashlib
import numpy as np
from onnx import helper
from support.compiling import compiled_from, random_array, results_of
from support.onnx_models import onnx_model
from edgekit.profiles.cpu import Target, this_cpu
from dataclasses import replace

shape = (1, 24, 28, 28)
weights = {
    "w": random_array((48, 24, 3, 3), 1),
    "d": random_array((48, 1, 3, 3), 2),
    "p": random_array((40, 48, 1, 1), 3),
    "m": random_array((28, 100), 4),
}
nodes = [
    helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
    helper.make_node("Conv", ["a", "d"], ["b"], pads=[1, 1, 1, 1], group=48),
    helper.make_node("Conv", ["b", "p"], ["c"]),
    helper.make_node("Tanh", ["c"], ["t"]),
    helper.make_node("MatMul", ["t", "m"], ["e"]),
    helper.make_node("Softmax", ["e"], ["s"], axis=3),
    helper.make_node("ReduceMean", ["e"], ["r"], axes=[2, 3]),
]
target = replace(this_cpu()[1], cores=4)
compiled = compiled_from(onnx_model(nodes, {"x": shape}, ["s", "r"], weights), target)
found = results_of(compiled, [random_array(shape)])
assert all(np.isfinite(array).all() for array in found)
print(*[hashlib.sha256(array.tobytes()).hexdigest() for array in found])
"""


def digests_on(threads: int) -> str:
    return script_on_threads(SCRIPT, threads).splitlines()[-1]


def test_a_network_gives_the_same_bits_on_any_number_of_threads() -> None:
    alone = digests_on(1)

    assert len(alone) == 2 * 2 * hashlib.sha256().digest_size + 1
    assert digests_on(2) == alone
    assert digests_on(4) == alone
