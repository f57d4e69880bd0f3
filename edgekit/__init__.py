"""Take a trained model to a board: the typed Python API. Each name is loaded when it is used.

import edgekit

ws = edgekit.Workspace()
report = ws.deploy("net.onnx", board="rpi4", offload=["ncnn"])

docs/python.md shows all of it.
"""

from __future__ import annotations

from edgekit.version import __version__

TYPE_CHECKING = False  # type checkers read it as True; the module typing takes 20 ms to load
if TYPE_CHECKING:
    from edgekit.advice.doctor import DoctorReport
    from edgekit.advice.doctor import examine as examine_board
    from edgekit.advice.summary import ModelSummary
    from edgekit.advice.summary import summarise as summarise_model
    from edgekit.advice.words import Recommendation
    from edgekit.api.device import BundleSession, DeviceHandle
    from edgekit.api.functions import (
        board_names,
        export_bundle,
        load_board,
        load_toolchain,
        make_request,
        toolchain_names,
    )
    from edgekit.api.workspace import Workspace
    from edgekit.backends.report import PartitionReport
    from edgekit.base.cancel import Cancellation
    from edgekit.base.errors import EdgekitError
    from edgekit.base.events import Event, Events
    from edgekit.base.tensors import Quantization, TensorSpec
    from edgekit.building.build import build as build_bundle
    from edgekit.building.request import BuildRequest, BuildResult
    from edgekit.bundle.folder import Bundle, open_bundle
    from edgekit.bundle.manifest import Manifest
    from edgekit.bundle.samples import load_samples
    from edgekit.devices.base import BenchPlan
    from edgekit.devices.local.device import LocalDevice
    from edgekit.models.model import ModelSource, open_model
    from edgekit.models.preprocess import Preprocess
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain
    from edgekit.project.file import Project, find_project
    from edgekit.store.comparing import Comparison
    from edgekit.store.results import Listing
    from edgekit.store.runs import BenchRun
    from edgekit.tuning.tune import TuneReport
    from edgekit.tuning.tune_c import TunedInC
    from edgekit.verbs.bench import bench as bench_bundle
    from edgekit.verbs.bench_report import BenchReport, BenchSummary
    from edgekit.verbs.deploy import DeployReport, FleetReport
    from edgekit.verbs.deploy import deploy as deploy_model
    from edgekit.verbs.evaluation.evaluate import EvaluationPlan
    from edgekit.verbs.evaluation.evaluate import evaluate as evaluate_bundle
    from edgekit.verbs.evaluation.report import EvaluationReport
    from edgekit.verbs.export.application import ExportResult
    from edgekit.verbs.mlperf.report import MlperfReport
    from edgekit.verbs.quantize import QuantizeReport, QuantizeRequest
    from edgekit.verbs.quantize import quantize as quantize_model
    from edgekit.verbs.report import ModelReport
    from edgekit.verbs.rollback import RollbackReport
    from edgekit.verbs.run import RunPlan, RunReport
    from edgekit.verbs.run import run as run_bundle
    from edgekit.verbs.verify import VerifyReport
    from edgekit.verbs.verify import verify as verify_bundle

__all__ = [
    "BenchPlan",
    "BenchReport",
    "BenchRun",
    "BenchSummary",
    "Board",
    "BuildRequest",
    "BuildResult",
    "Bundle",
    "BundleSession",
    "Cancellation",
    "Comparison",
    "DeployReport",
    "DeviceHandle",
    "DoctorReport",
    "EdgekitError",
    "EvaluationPlan",
    "EvaluationReport",
    "Event",
    "Events",
    "ExportResult",
    "FleetReport",
    "Listing",
    "LocalDevice",
    "Manifest",
    "MlperfReport",
    "ModelReport",
    "ModelSource",
    "ModelSummary",
    "PartitionReport",
    "Preprocess",
    "Project",
    "Quantization",
    "QuantizeReport",
    "QuantizeRequest",
    "Recommendation",
    "RollbackReport",
    "RunPlan",
    "RunReport",
    "TensorSpec",
    "Toolchain",
    "TuneReport",
    "TunedInC",
    "VerifyReport",
    "Workspace",
    "__version__",
    "bench_bundle",
    "board_names",
    "build_bundle",
    "deploy_model",
    "evaluate_bundle",
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
    "Event": ("edgekit.base.events", "Event"),
    "FleetReport": ("edgekit.verbs.deploy", "FleetReport"),
    "RollbackReport": ("edgekit.verbs.rollback", "RollbackReport"),
    "TunedInC": ("edgekit.tuning.tune_c", "TunedInC"),
    "TuneReport": ("edgekit.tuning.tune", "TuneReport"),
    "Comparison": ("edgekit.store.comparing", "Comparison"),
    "BenchRun": ("edgekit.store.runs", "BenchRun"),
    "Listing": ("edgekit.store.results", "Listing"),
    "Recommendation": ("edgekit.advice.words", "Recommendation"),
    "PartitionReport": ("edgekit.backends.report", "PartitionReport"),
    "BundleSession": ("edgekit.api.device", "BundleSession"),
    "DeviceHandle": ("edgekit.api.device", "DeviceHandle"),
    "Cancellation": ("edgekit.base.cancel", "Cancellation"),
    "Workspace": ("edgekit.api.workspace", "Workspace"),
    "BenchPlan": ("edgekit.devices.base", "BenchPlan"),
    "BenchReport": ("edgekit.verbs.bench_report", "BenchReport"),
    "BenchSummary": ("edgekit.verbs.bench_report", "BenchSummary"),
    "Board": ("edgekit.profiles.board", "Board"),
    "BuildRequest": ("edgekit.building.request", "BuildRequest"),
    "BuildResult": ("edgekit.building.request", "BuildResult"),
    "Bundle": ("edgekit.bundle.folder", "Bundle"),
    "DeployReport": ("edgekit.verbs.deploy", "DeployReport"),
    "DoctorReport": ("edgekit.advice.doctor", "DoctorReport"),
    "EdgekitError": ("edgekit.base.errors", "EdgekitError"),
    "EvaluationPlan": ("edgekit.verbs.evaluation.evaluate", "EvaluationPlan"),
    "MlperfReport": ("edgekit.verbs.mlperf.report", "MlperfReport"),
    "EvaluationReport": ("edgekit.verbs.evaluation.report", "EvaluationReport"),
    "Events": ("edgekit.base.events", "Events"),
    "ExportResult": ("edgekit.verbs.export.application", "ExportResult"),
    "LocalDevice": ("edgekit.devices.local.device", "LocalDevice"),
    "Manifest": ("edgekit.bundle.manifest", "Manifest"),
    "ModelReport": ("edgekit.verbs.report", "ModelReport"),
    "ModelSource": ("edgekit.models.model", "ModelSource"),
    "ModelSummary": ("edgekit.advice.summary", "ModelSummary"),
    "Preprocess": ("edgekit.models.preprocess", "Preprocess"),
    "Project": ("edgekit.project.file", "Project"),
    "QuantizeReport": ("edgekit.verbs.quantize", "QuantizeReport"),
    "QuantizeRequest": ("edgekit.verbs.quantize", "QuantizeRequest"),
    "quantize_model": ("edgekit.verbs.quantize", "quantize"),
    "Quantization": ("edgekit.base.tensors", "Quantization"),
    "RunPlan": ("edgekit.verbs.run", "RunPlan"),
    "RunReport": ("edgekit.verbs.run", "RunReport"),
    "TensorSpec": ("edgekit.base.tensors", "TensorSpec"),
    "Toolchain": ("edgekit.profiles.toolchain", "Toolchain"),
    "VerifyReport": ("edgekit.verbs.verify", "VerifyReport"),
    "bench_bundle": ("edgekit.verbs.bench", "bench"),
    "board_names": ("edgekit.api.functions", "board_names"),
    "build_bundle": ("edgekit.building.build", "build"),
    "deploy_model": ("edgekit.verbs.deploy", "deploy"),
    "evaluate_bundle": ("edgekit.verbs.evaluation.evaluate", "evaluate"),
    "examine_board": ("edgekit.advice.doctor", "examine"),
    "export_bundle": ("edgekit.api.functions", "export_bundle"),
    "find_project": ("edgekit.project.file", "find_project"),
    "load_board": ("edgekit.api.functions", "load_board"),
    "load_samples": ("edgekit.bundle.samples", "load_samples"),
    "load_toolchain": ("edgekit.api.functions", "load_toolchain"),
    "make_request": ("edgekit.api.functions", "make_request"),
    "open_bundle": ("edgekit.bundle.folder", "open_bundle"),
    "open_model": ("edgekit.models.model", "open_model"),
    "run_bundle": ("edgekit.verbs.run", "run"),
    "summarise_model": ("edgekit.advice.summary", "summarise"),
    "toolchain_names": ("edgekit.api.functions", "toolchain_names"),
    "verify_bundle": ("edgekit.verbs.verify", "verify"),
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
