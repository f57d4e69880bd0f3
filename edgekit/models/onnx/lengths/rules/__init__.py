"""Rules for operators that meet a dimension that varies, one file a kind of operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from edgekit.models.onnx.graph import domain_of
from edgekit.models.onnx.lengths.rules.elementwise import ELEMENTWISE
from edgekit.models.onnx.lengths.rules.own import DOMAIN, OWN
from edgekit.models.onnx.lengths.rules.products import PRODUCTS
from edgekit.models.onnx.lengths.rules.recurrent import RECURRENT
from edgekit.models.onnx.lengths.rules.reducing import REDUCING
from edgekit.models.onnx.lengths.rules.resizing import RESIZING
from edgekit.models.onnx.lengths.rules.shaping import SHAPING
from edgekit.models.onnx.lengths.rules.slicing import SLICING
from edgekit.models.onnx.lengths.rules.windows import WINDOWS
from edgekit.models.onnx.lengths.step import Rule, Step

_FILES = (ELEMENTWISE, PRODUCTS, RECURRENT, REDUCING, RESIZING, SHAPING, SLICING, WINDOWS)
RULES: Mapping[tuple[str, str], Rule] = {
    **{("", name): rule for rules in _FILES for name, rule in rules.items()},
    **{(DOMAIN, name): rule for name, rule in OWN.items()},
}
"""The rule for each operator, by domain and name. What has none is refused."""

EVERY = range(1 << 16)
_PADDED: Mapping[str, Collection[int]] = {
    **dict.fromkeys((*ELEMENTWISE, "Attention", "Concat", "Einsum"), EVERY),
    **dict.fromkeys(("MatMul", "MatMulInteger", "Gather", "GatherElements", "GatherND"), (0, 1)),
    **dict.fromkeys(("Gemm", "ScatterElements", "ScatterND"), (0, 1, 2)),
    **dict.fromkeys(RECURRENT, (0, 4, 5, 6)),
    "QLinearMatMul": (0, 3),
    "ReverseSequence": (0, 1),
    "RoiAlign": (1, 2),
}
"""The inputs whose buffers a rule expects to be larger; of other operators the first one."""


def rule_for(step: Step) -> Rule | None:
    """Return the rule of a node; None if there is none for the inputs that vary."""
    key = (domain_of(step.node), step.node.op_type)
    padded = [i for i, value in enumerate(step.inputs) if value is not None and value.padded]
    allowed = _PADDED.get(key[1], (0,)) if not key[0] else EVERY
    if any(i not in allowed for i in padded):
        return None
    return RULES.get(key)
