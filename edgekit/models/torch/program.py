"""Load a checked program with PyTorch, for one set of shapes: for the oracle and the exporter."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgekit.base.errors import MissingToolError, ModelError, UnsupportedModelError
from edgekit.base.options import option
from edgekit.models.torch.archive import ProgramOutline, read_program

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from edgekit.base.tensors import TensorSpec
    from edgekit.models.model import ModelSource


@dataclass(frozen=True)
class OpenedProgram:
    """A program that torch has loaded, and its outline, from one reading of the file."""

    program: ExportedProgram
    outline: ProgramOutline


def import_torch() -> ModuleType:
    try:
        import torch
        import torch.export
    except ImportError as error:
        raise MissingToolError(
            "reading .pt2 models needs PyTorch",
            hint="pip install 'edgekit[torch]'",
        ) from error
    module: ModuleType = torch
    return module


def open_program(source: ModelSource) -> OpenedProgram:
    """Load a program from a new archive that contains only checked data."""
    checked = read_program(source.path)
    torch = import_torch()
    for target in sorted(checked.targets):
        _check_operator(torch, target, source)
    try:
        with quiet_torch(), _no_pickles():
            program: ExportedProgram = torch.export.load(io.BytesIO(checked.archive))
    except Exception as error:
        raise ModelError(
            f"PyTorch {torch.__version__} cannot load {source.path.name}: {first_line(error)}",
            hint="save it again with the PyTorch that is installed on this host",
        ) from error
    return OpenedProgram(program, checked.outline)


def specialised(opened: OpenedProgram, inputs: tuple[TensorSpec, ...]) -> ExportedProgram:
    """Return the program for these shapes; one with open shapes is exported again, unless a
    dimension varies: then all stay open."""
    is_open = any(spec.open_dimensions for spec in opened.outline.inputs)
    if not is_open or any(spec.varying for spec in inputs):
        return opened.program
    torch = import_torch()
    tensors = [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in inputs]
    positional, keywords = arguments(opened.program, tensors)
    try:
        with quiet_torch():
            closed: ExportedProgram = torch.export.export(
                opened.program.module(), positional, keywords
            )
    except Exception as error:
        shapes = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in inputs)
        raise ModelError(
            f"the program does not take {shapes}: {first_line(error)}",
            hint=f"choose a {option('shape')} that the program was exported for",
        ) from error
    return closed


def arguments(program: ExportedProgram, tensors: list[torch.Tensor]) -> tuple[Any, Any]:
    """Return flat tensors as the positional and keyword arguments of the exported program."""
    from torch.utils import _pytree as pytree

    specification = program.call_spec.in_spec
    if specification is None:
        return tuple(tensors), {}
    positional, keywords = pytree.tree_unflatten(tensors, specification)
    return positional, keywords


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Silence torch's deprecation warnings, which do not concern the user of a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


def _check_operator(torch: ModuleType, target: str, source: ModelSource) -> None:
    """Refuse a name in `torch.ops` that is no overload of an operator, which torch would call."""
    if not target.startswith("torch.ops.") or target.startswith("torch.ops.higher_order."):
        return  # one of a short list of names
    _, _, namespace, name, overload = target.split(".")
    operator = getattr(getattr(torch.ops, namespace), name, None)
    if not isinstance(operator, torch._ops.OpOverloadPacket) or (
        overload not in operator.overloads()
    ):
        raise UnsupportedModelError(
            f"{source.path.name} calls {target}, which PyTorch {torch.__version__} does not have",
            hint="save it again with the PyTorch that is installed on this host",
        )


@contextmanager
def _no_pickles() -> Iterator[None]:
    """Make torch refuse pickles of anything but tensors, also where it would allow any object."""
    names = ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ[names[0]] = "1"
    try:
        yield
    finally:
        del os.environ[names[0]]
        os.environ.update({name: value for name, value in before.items() if value is not None})
