"""The rules for oneDNN."""

from __future__ import annotations

from edgekit.backends.base import Rule
from edgekit.backends.plain.rules import Takes
from edgekit.backends.plain.rules import all_rules as rules_of

_CURVES = frozenset(
    {"mish", "hard_swish", "hard_swish_6", "swish", "softplus", "elu", "hard_sigmoid", "sigmoid"}
    | {"nn.relu", "nn.leakyrelu", "clip", "tanh", "nn.gelu", "nn.gelu_tanh"}
)
_OTHERS = {"view", "permute", "softmax", "log_softmax", "concat", "slice", "pad", "matmul"}


def all_rules() -> tuple[Rule, ...]:
    return rules_of(
        Takes(
            library="oneDNN",
            most_axes=5,
            curves=_CURVES,
            fused=_CURVES,
            fused_sum=frozenset({"nn.relu", "nn.leakyrelu", "clip"}),
            unary=frozenset({"abs", "negative", "square", "sqrt", "rsqrt", "exp", "log", "round"}),
            binary=frozenset({"add", "subtract", "multiply", "divide", "maximum", "minimum"}),
            reductions=frozenset({"sum", "mean", "max", "min", "prod"}),
            others=frozenset(_OTHERS | {"layer_norm", "prelu", "resize"}),
        )
    )
