"""Architectures of torchvision and timm, and others, built and run on this machine.

    PYTHONPATH=.:FOLDER python -m benchmarks.torch_architectures [--filter REGEX]

FOLDER holds torchvision and timm (scripts/setup installs them in a folder of their own). Every
architecture has random weights and a small input, is exported, built and run as `edgekit deploy`
does, and compared with PyTorch: the largest error relative to the largest element. Results are kept
in a cache, so that a run that was stopped goes on; `--fresh` begins again. Writes
docs/torch-architectures.md.
"""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil  # type: ignore[import-untyped]

from benchmarks import campaign
from benchmarks.campaign import ROOT
from benchmarks.torch_ops import JUDGED, as_array

if TYPE_CHECKING:
    import torch

DOCS = ROOT / "docs" / "torch-architectures.md"
LIMIT = 1e-3
"""The error, relative to the largest element of an output, from which a result is wrong."""

TORCHVISION = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s"),
    *("googlenet", "inception_v3", "maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small"),
    *("regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnext50_32x4d", "shufflenet_v2_x0_5"),
    *("squeezenet1_1", "swin_t", "swin_v2_t", "vgg11", "vit_b_32", "wide_resnet50_2"),
)
SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large")
VIDEO = ("r3d_18", "r2plus1d_18")
TIMM = (
    *(
        "cait_xxs24_224",
        "coat_lite_tiny",
        "convmixer_768_32",
        "crossvit_tiny_240",
        "deit_tiny_patch16_224",
    ),
    *("edgenext_xx_small", "efficientformer_l1", "fastvit_t8", "ghostnet_100", "hrnet_w18_small"),
    *("levit_128s", "mixer_s32_224", "mobilevit_xxs", "mobileone_s0", "nfnet_l0", "poolformer_s12"),
    *(
        "pvt_v2_b0",
        "repvgg_a0",
        "res2net50_26w_4s",
        "resmlp_12_224",
        "tinynet_e",
        "xcit_nano_12_p16_224",
    ),
)


_LIBRARIES: list[Any] = []
"""What was declared: a declaration ends with its object."""


def architectures() -> dict[str, Callable[[], tuple[Any, tuple[torch.Tensor, ...]]]]:
    """Return makers of a module and its inputs, by name."""
    from benchmarks import torch_networks

    _declare_nms()
    found = dict(torch_networks.NETWORKS)
    found |= {f"torchvision {name}": _torchvision(name) for name in TORCHVISION}
    found |= {f"torchvision {name}": _torchvision(name, "segmentation") for name in SEGMENTATION}
    found |= {f"torchvision {name}": _torchvision(name, "video") for name in VIDEO}
    found |= {f"timm {name}": _timm(name) for name in TIMM}
    return found


def _declare_nms() -> None:
    """Declare the operators that torchvision looks for while it is imported: a wheel that was built
    for GPUs brings none that a CPU build of PyTorch can load."""
    import torch

    if not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        _LIBRARIES.append(library)


def _torchvision(name: str, kind: str = "") -> Callable[[], tuple[Any, tuple[torch.Tensor, ...]]]:
    def make() -> tuple[Any, tuple[torch.Tensor, ...]]:
        import torch
        import torchvision

        place = getattr(torchvision.models, kind) if kind else torchvision.models
        extents = {"inception_v3": (96, 96), "maxvit_t": (224, 224), "vit_b_32": (224, 224)}.get(
            name, (64, 64)
        )
        options: dict[str, Any] = {"weights": None}
        if kind == "segmentation":
            options["weights_backbone"] = None
        if name in ("googlenet", "inception_v3"):
            options["init_weights"] = False
        shape = (1, 3, 4, *extents) if kind == "video" else (1, 3, *extents)
        return getattr(place, name)(**options), (torch.randn(shape),)

    return make


def _timm(name: str) -> Callable[[], tuple[Any, tuple[torch.Tensor, ...]]]:
    def make() -> tuple[Any, tuple[torch.Tensor, ...]]:
        import timm
        import torch

        module = timm.create_model(name, pretrained=False)
        shape = module.default_cfg["input_size"]
        if not module.default_cfg.get("fixed_input_size"):
            shape = (3, 96, 96)
        return module, (torch.randn(1, *shape),)

    return make


@dataclass(frozen=True)
class Result:
    name: str
    verdict: str
    reason: str = ""
    error: float = 0.0
    parameters: int = 0
    converting: float = 0.0
    """The CPU seconds from the program to ONNX."""
    building: float = 0.0
    """The CPU seconds from ONNX to the library, with one run of it."""


def judge(name: str) -> Result:
    from edgekit.base.errors import ModelError, UnsupportedModelError

    try:
        found = run(name, *architectures()[name]())
    except (ModelError, UnsupportedModelError) as problem:
        return Result(name, "refused", " ".join((problem.message, *problem.details)))
    except Exception as problem:  # noqa: BLE001 -- whatever it is, it is the finding
        lines = str(problem).strip().splitlines() or [""]
        return Result(name, "crash", f"{type(problem).__name__}: {lines[-1][:300]}")
    return found


def run(name: str, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Result:
    """Build and run a module on this machine, and compare it with PyTorch."""
    import torch

    sys.path.append(str(ROOT / "tests"))
    from support.elementwise import deployed

    from edgekit.models.model import open_model, scan_model

    torch.manual_seed(0)
    module.eval()
    for weight in module.parameters():
        if weight.ndim > 1 and not weight.any():
            torch.nn.init.normal_(weight, std=0.02)  # or the network would return only zeros
    for norm in module.modules():
        if (
            isinstance(norm, torch.nn.modules.batchnorm._BatchNorm)
            and norm.running_mean is not None
        ):
            norm.running_mean.uniform_(-0.2, 0.2)
            norm.running_var.uniform_(0.5, 1.5)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        wanted = torch.utils._pytree.tree_leaves(module(*inputs))
        path = Path(folder) / "model.pt2"
        torch.export.save(torch.export.export(module, inputs), path)
        times = [_cpu_seconds()]
        names = [spec.name for spec in scan_model(open_model(path)).inputs]
        times.append(_cpu_seconds())
        found = deployed(path, dict(zip(names, map(as_array, inputs), strict=True)))
        times.append(_cpu_seconds())
    error = max(_error(a, as_array(b)) for a, b in zip(found.values(), wanted, strict=True))
    return Result(
        name,
        "right" if error < LIMIT else "wrong",
        error=error,
        parameters=sum(weight.numel() for weight in module.parameters()),
        converting=times[1] - times[0],
        building=times[2] - times[1],
    )


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children, those that still run too."""
    family = [own := psutil.Process(), *own.children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in family)


def _error(found: np.ndarray, wanted: np.ndarray) -> float:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def markdown(results: Sequence[Result], version: str, left: int, fresh: bool) -> str:
    totals = Counter(result.verdict for result in results)
    lines = [
        "# PyTorch architectures",
        "",
        "Written by `python -m benchmarks.torch_architectures` (`make torch-architectures`); do "
        "not edit.",
        "",
        f"Architectures with random weights and small inputs, exported with PyTorch {version}, "
        "built and run as `edgekit deploy` does on this",
        "machine and compared with PyTorch. *Error*: the largest, relative to the largest element "
        f"of the output; above {LIMIT:g} a result is wrong. *Convert*: CPU seconds from the "
        "program to ONNX; *build*: from ONNX to the library that a device loads, with one run.",
        "",
        *([f"{left} more architectures were not run.", ""] if left else []),
        campaign.header("python -m benchmarks.torch_architectures", JUDGED, fresh),
        "| right | refused with a reason | wrong | crashing |",
        "|---|---|---|---|",
        f"| {totals['right']} | {totals['refused']} | {totals['wrong']} | {totals['crash']} |",
        "",
        "| architecture | result | error | parameters | convert | build |",
        "|---|---|---|---|---|---|",
    ]
    for item in results:
        size = f"{item.parameters / 1e6:.3g} M" if item.parameters else "–"
        error = f"{item.error:.1e}" if item.parameters else "–"
        reason = f": {item.reason}" if item.reason else ""
        times = f"{item.converting:.1f} s | {item.building:.1f} s" if item.parameters else "– | –"
        lines.append(f"| {item.name} | {item.verdict}{reason} | {error} | {size} | {times} |")
    return "\n".join([*lines, ""])


def main() -> int:
    options = campaign.parser(__doc__, DOCS).parse_args()
    warnings.simplefilter("ignore")
    from edgekit.base.tvm_compat import load_tvm

    load_tvm()
    import torch

    torch.set_num_threads(1)
    work = campaign.Campaign(
        f"torch-architectures-{torch.__version__}",
        DOCS,
        Result,
        lambda tasks: {task: [judge(task[0])] for task in tasks},
        lambda task, reason: [Result(task[0], "crash", reason)],
        lambda results, left, fresh: markdown(results, torch.__version__, left, fresh),
        limit_s=1800,
    )
    tasks = [(name,) for name in architectures() if re.search(options.filter, name)]
    return campaign.run(work, tasks, options)


if __name__ == "__main__":
    sys.exit(main())
