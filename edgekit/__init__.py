"""From a trained model to a board that runs it: the typed Python API, each name loaded when used.

    import edgekit

    request = edgekit.make_request(Path("net.onnx"), "local", None, {}, {})
    bundle = edgekit.build_bundle(request, Path("out")).bundle

The verbs carry their object (`build_bundle`, not `build`): `edgekit.build`, `edgekit.run` and so
on are the modules they live in, whichever was imported first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.version import __version__

if TYPE_CHECKING:
    from edgekit.bench import bench as bench_bundle
    from edgekit.board import Board, board_names, load_board
    from edgekit.build import BuildResult
    from edgekit.build import build as build_bundle
    from edgekit.building.request import BuildRequest
    from edgekit.bundle import Bundle, open_bundle
    from edgekit.cross.toolchain import Toolchain, load_toolchain, toolchain_names
    from edgekit.deploy import DeployReport
    from edgekit.deploy import deploy as deploy_model
    from edgekit.devices.base import BenchPlan
    from edgekit.devices.local import LocalDevice
    from edgekit.doctor import DoctorReport
    from edgekit.doctor import examine as examine_board
    from edgekit.errors import EdgekitError
    from edgekit.events import Events
    from edgekit.export.application import ExportResult
    from edgekit.export.application import export as export_bundle
    from edgekit.manifest import Manifest
    from edgekit.model import ModelSource, open_model
    from edgekit.preprocess import Preprocess
    from edgekit.project import Project, find_project
    from edgekit.quantize import QuantizeReport, QuantizeRequest
    from edgekit.quantize import quantize as quantize_model
    from edgekit.request import make_request
    from edgekit.run import RunReport
    from edgekit.run import run as run_bundle
    from edgekit.samples import load_samples
    from edgekit.summary import ModelSummary
    from edgekit.summary import summarise as summarise_model
    from edgekit.tensors import Quantization, TensorSpec
    from edgekit.verbs.bench_report import BenchReport, BenchSummary
    from edgekit.verify import VerifyReport
    from edgekit.verify import verify as verify_bundle

__all__ = [
    "BenchPlan",
    "BenchReport",
    "BenchSummary",
    "Board",
    "BuildRequest",
    "BuildResult",
    "Bundle",
    "DeployReport",
    "DoctorReport",
    "EdgekitError",
    "Events",
    "ExportResult",
    "LocalDevice",
    "Manifest",
    "ModelSource",
    "ModelSummary",
    "Preprocess",
    "Project",
    "Quantization",
    "QuantizeReport",
    "QuantizeRequest",
    "RunReport",
    "TensorSpec",
    "Toolchain",
    "VerifyReport",
    "__version__",
    "bench_bundle",
    "board_names",
    "build_bundle",
    "deploy_model",
    "examine_board",
    "export_bundle",
    "find_project",
    "load_board",
    "load_samples",
    "load_toolchain",
    "make_request",
    "open_bundle",
    "open_model",
    "quantize_model",
    "run_bundle",
    "summarise_model",
    "toolchain_names",
    "verify_bundle",
]

_HOMES: dict[str, tuple[str, str]] = {
    "BenchPlan": ("edgekit.devices.base", "BenchPlan"),
    "BenchReport": ("edgekit.verbs.bench_report", "BenchReport"),
    "BenchSummary": ("edgekit.verbs.bench_report", "BenchSummary"),
    "Board": ("edgekit.board", "Board"),
    "BuildRequest": ("edgekit.building.request", "BuildRequest"),
    "BuildResult": ("edgekit.build", "BuildResult"),
    "Bundle": ("edgekit.bundle", "Bundle"),
    "DeployReport": ("edgekit.deploy", "DeployReport"),
    "DoctorReport": ("edgekit.doctor", "DoctorReport"),
    "EdgekitError": ("edgekit.errors", "EdgekitError"),
    "Events": ("edgekit.events", "Events"),
    "ExportResult": ("edgekit.export.application", "ExportResult"),
    "LocalDevice": ("edgekit.devices.local", "LocalDevice"),
    "Manifest": ("edgekit.manifest", "Manifest"),
    "ModelSource": ("edgekit.model", "ModelSource"),
    "ModelSummary": ("edgekit.summary", "ModelSummary"),
    "Preprocess": ("edgekit.preprocess", "Preprocess"),
    "Project": ("edgekit.project", "Project"),
    "QuantizeReport": ("edgekit.quantize", "QuantizeReport"),
    "QuantizeRequest": ("edgekit.quantize", "QuantizeRequest"),
    "quantize_model": ("edgekit.quantize", "quantize"),
    "Quantization": ("edgekit.tensors", "Quantization"),
    "RunReport": ("edgekit.run", "RunReport"),
    "TensorSpec": ("edgekit.tensors", "TensorSpec"),
    "Toolchain": ("edgekit.cross.toolchain", "Toolchain"),
    "VerifyReport": ("edgekit.verify", "VerifyReport"),
    "bench_bundle": ("edgekit.bench", "bench"),
    "board_names": ("edgekit.board", "board_names"),
    "build_bundle": ("edgekit.build", "build"),
    "deploy_model": ("edgekit.deploy", "deploy"),
    "examine_board": ("edgekit.doctor", "examine"),
    "export_bundle": ("edgekit.export.application", "export"),
    "find_project": ("edgekit.project", "find_project"),
    "load_board": ("edgekit.board", "load_board"),
    "load_samples": ("edgekit.samples", "load_samples"),
    "load_toolchain": ("edgekit.cross.toolchain", "load_toolchain"),
    "make_request": ("edgekit.request", "make_request"),
    "open_bundle": ("edgekit.bundle", "open_bundle"),
    "open_model": ("edgekit.model", "open_model"),
    "run_bundle": ("edgekit.run", "run"),
    "summarise_model": ("edgekit.summary", "summarise"),
    "toolchain_names": ("edgekit.cross.toolchain", "toolchain_names"),
    "verify_bundle": ("edgekit.verify", "verify"),
}
"""Where each public name lives. A test compares it with the imports above."""


if not TYPE_CHECKING:  # a type checker must go on noticing misspelt names

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'edgekit' has no attribute {name!r}")
        from importlib import import_module

        module, attribute = _HOMES[name]
        value = getattr(import_module(module), attribute)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted([*globals(), *_HOMES])
