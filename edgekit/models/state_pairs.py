"""Outputs that become inputs in the next call, as the user pairs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgekit.base.errors import ModelError
from edgekit.base.options import option
from edgekit.base.tensors import TensorSpec
from edgekit.base.wording import nearest

Pairs = Sequence[tuple[str, str]]
"""Outputs, each with an input."""


def with_state(
    pairs: Pairs, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> tuple[TensorSpec, ...]:
    """Return the inputs, with the output that each paired one takes in the next call."""
    results = {spec.name: spec for spec in outputs}
    specs = {spec.name: spec for spec in inputs}
    for output, name in pairs:
        pair = option("state", f"{output}={name}")
        if output in specs and name in results and not (output in results or name in specs):
            raise ModelError(
                f"{pair} names the input first", hint=f"write {option('state', f'{name}={output}')}"
            )
        for kind, word, known in (("output", output, results), ("input", name, specs)):
            if word not in known:
                near = nearest(word, known)
                raise ModelError(
                    f"the model has no {kind} '{word}'",
                    hint=f"did you mean {near}?" if near else f"it has {', '.join(known)}",
                )
        spec, result = specs[name], results[output]
        if replace(result, name=name, state=None) != replace(spec, state=None):
            raise ModelError(
                f"the output '{output}' cannot become the input '{name}': it is "
                f"{_described(result)}, and the input {_described(spec)}",
                hint=f"{option('state')} pairs tensors of one shape, type and quantisation",
            )
        if spec.varying:
            raise ModelError(
                f"the sizes of the input '{name}' vary, and a state has one size",
                hint=f"give its dimensions one size with {option('shape')}, or pass it yourself "
                f"without {option('state')}",
            )
        if spec.state is not None:
            raise ModelError(
                f"the input '{name}' already takes the output '{spec.state}'",
                hint="give each input one output",
            )
        specs[name] = replace(spec, state=output)
    return tuple(specs.values())


def _described(spec: TensorSpec) -> str:
    scale = " quantised" if spec.quantization else ""
    return f"{spec}{scale}"
