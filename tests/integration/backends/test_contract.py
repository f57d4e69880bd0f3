"""Every backend keeps the contract, which outside backends run too. Labs compute the regions, so
that no case waits for a C++ compiler; the contract's test of names is a whole build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st
from support import acl_arm, ncnn_arm, ncnn_lab, onednn_lab, tensorrt_regions
from support.needs import ARM_PROGRAMS, needs
from support.offloaded import Offloaded

from edgekit.models.model import Model
from edgekit.testing.backend_contract import BackendContract, OperatorContract
from edgekit.testing.operators import FAMILIES, Case


def _with_batches(family: Callable[[], st.SearchStrategy[Case]]) -> st.SearchStrategy[Case]:
    """One to three images at once."""

    def repeated(case: Case, batch: int) -> Case:
        case.inputs = [(batch * shape[0], *shape[1:]) for shape in case.inputs]
        return case

    return st.builds(repeated, family(), st.sampled_from((1, 2, 3)))


NCNN_LACKS = {"functions": ("exp", "log", "abs", "negative", "add", "maximum"), "pairs": ("exp",)}
"""What is wrong in ncnn for zero or for large numbers, and the other parts of softplus."""
ONEDNN_LACKS = {
    "functions": ("erf", "floor", "ceil"),
    "pairs": ("subtract", "divide", "add", "multiply", "maximum", "minimum"),
}
"""What oneDNN has no primitive for; of two tensors it repeats the second alone."""
ONEDNN_FAMILIES = {
    name: partial(_with_batches, family)
    if name in ("convolutions", "poolings", "resizings")
    else family
    for name, family in FAMILIES.items()
    if name != "places"
}

_ACTIVATIONS = ("nn.relu", "nn.leakyrelu", "clip", "sigmoid")
_CONVOLUTIONS = ("nn.conv2d", "nn.conv1d", "nn.conv2d_transpose", "nn.conv1d_transpose")
_MOVEMENTS = ("concat", "reshape", "nn.pad", "strided_slice", "split", "permute_dims")
ACL_TAKES = {
    "convolutions": (*_CONVOLUTIONS, *_ACTIVATIONS),
    "products": _ACTIVATIONS,
    "poolings": ("nn.max_pool2d", "nn.max_pool1d", "nn.avg_pool2d", "nn.avg_pool1d", "mean"),
    "pairs": ("add", "subtract", "multiply", "divide", "maximum", "minimum", "exp"),
    "functions": (
        *("nn.relu", "nn.leakyrelu", "nn.prelu", "clip", "abs", "exp", "negative", "tanh"),
    ),
    "normalisations": ("nn.softmax",),
    "movements": (*_MOVEMENTS, "nn.relu"),
    "reductions": ("sum", "mean", "prod", "max", "min"),
    "resizings": ("image.resize2d",),
}
"""What is left to TVM without a reason that ACL_REFUSES knows is a gap in the rules."""
ACL_REFUSES = (
    "ACL holds 4 axes",
    "it is dilated",
    "its kernel is not square",
    "is repeated",
    "it is not over",
    "its coordinates are",
    "its nearest pixels are",
    "two of its pixels are as near",
    "its single pixel",
    "its last windows reach beyond",
    "its hard swish has other constants",
)
ACL_FAMILIES = {name: FAMILIES[name] for name in ACL_TAKES}


class InLab(OperatorContract):
    examples = 5
    run: Callable[[Model, Sequence[np.ndarray]], Offloaded]

    def outputs(self, model: Model, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return type(self).run(model, inputs).outputs

    def may_stay(self, family: str, case: Case, operator: str, reason: str) -> bool:
        return operator in case.stays


class InNcnn(InLab):
    backend = "ncnn"
    run = staticmethod(ncnn_lab.offloaded)

    def may_stay(self, family: str, case: Case, operator: str, reason: str) -> bool:
        # A divisor that is computed may be zero.
        is_known = operator in NCNN_LACKS.get(family, ()) or "by a reciprocal" in reason
        return is_known or super().may_stay(family, case, operator, reason)


class InOneDnn(InLab):
    backend = "onednn"
    run = staticmethod(onednn_lab.offloaded)
    families = ONEDNN_FAMILIES

    def may_stay(self, family: str, case: Case, operator: str, reason: str) -> bool:
        return operator in (*case.stays, *ONEDNN_LACKS.get(family, ()))


class InAcl(InLab):
    backend = "acl"
    board = "rpi4"
    examples = 4
    run = staticmethod(acl_arm.offloaded)
    families = ACL_FAMILIES

    def may_stay(self, family: str, case: Case, operator: str, reason: str) -> bool:
        known = any(why in reason for why in ACL_REFUSES)
        return known or operator not in ACL_TAKES[family]


class InTensorRt(InLab):
    """Onnxruntime computes the ONNX that TensorRT would get."""

    backend = "tensorrt"
    board = "jetson-orin"
    run = staticmethod(tensorrt_regions.offloaded)

    def may_stay(self, family: str, case: Case, operator: str, reason: str) -> bool:
        # Of several that are equal, the last is counted from behind: in integers, which TVM has,
        # as it has rows that are alone.
        return family == "places" and operator in ("subtract", "argmax")


@needs("ncnn")
class TestNcnn(InNcnn, BackendContract):
    pass


@needs("onednn")
class TestOneDnn(InOneDnn, BackendContract):
    pass


@needs("acl-rpi4", *ARM_PROGRAMS)
class TestAcl(InAcl, BackendContract):
    pass


class TestTensorRt(InTensorRt, BackendContract):
    pass


@needs("ncnn")
@pytest.mark.operators
class TestManyOperatorsInNcnn(InNcnn):
    examples = 80


@needs("ncnn-rpi4", *ARM_PROGRAMS)
@pytest.mark.operators
class TestManyOperatorsInNcnnOnArm(InNcnn):
    """Other vector code than this machine's, under emulation."""

    examples = 30

    def outputs(self, model: Model, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        ncnn_arm.arm_machine()
        return ncnn_lab.offloaded(model, inputs, ncnn_arm.ArmRegion).outputs


@needs("vulkan", "ncnn-vulkan")
@pytest.mark.operators
class TestManyOperatorsInNcnnOnVulkan(InNcnn):
    """The shaders that ncnn has for GPUs, through Mesa's lavapipe."""

    examples = 30
    run = staticmethod(partial(ncnn_lab.offloaded, vulkan=True, software_vulkan=True))


@needs("onednn")
@pytest.mark.operators
class TestManyOperatorsInOneDnn(InOneDnn):
    examples = 80


@needs("acl-rpi4", *ARM_PROGRAMS)
@pytest.mark.operators
class TestManyOperatorsInAcl(InAcl):
    examples = 60


@pytest.mark.operators
class TestManyOperatorsForTensorRt(InTensorRt):
    examples = 80
