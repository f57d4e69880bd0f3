"""PyTorch programs saved by torch.export.save (.pt2): list their content, and import them.

A .pt2 file can carry code. `archive.py` reads it and writes a new archive of parts that cannot run
any; torch loads only that archive.
"""

from __future__ import annotations

import io
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgekit.base.errors import EdgekitError, MissingToolError, ModelError, UnsupportedModelError
from edgekit.base.events import Events
from edgekit.base.tensors import OpenTensorSpec, TensorSpec
from edgekit.base.tvm_compat import load_tvm
from edgekit.models.model import Model, ModelScan, ModelSource, OperatorCount, UnsupportedOperator
from edgekit.models.torch.archive import ProgramOutline, read_program
from edgekit.models.torch.guards import holds

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def check_inputs(source: ModelSource) -> None:
    """Do nothing: open shapes are known only after reading the file, in `load`."""


def content_files(path: Path) -> tuple[Path, ...]:
    """Return the files of the model: a saved program is one file."""
    return (path,)


def scan(source: ModelSource) -> ModelScan:
    """List the content of the file, and the operators that TVM's importer does not know."""
    opened = open_program(source)
    outline = opened.outline
    counts = Counter(outline.operators)
    return ModelScan(
        inputs=tuple(_closed_if_given(spec, source) for spec in outline.inputs),
        outputs=outline.outputs,
        operators=tuple(OperatorCount(name, count) for name, count in counts.most_common()),
        parameters=outline.parameters,
        parameter_bytes=outline.parameter_bytes,
        unsupported=_unsupported(_decomposed(opened.program)),
    )


def load(source: ModelSource, events: Events) -> Model:
    """Import the program as a Relax module, every dimension known; batch norm stays an operator."""
    from edgekit.compiler.passes.guard_indices import guard_indices

    _check_no_constants(source)
    opened = open_program(source)
    outline = opened.outline
    inputs = closed_inputs(outline, source)
    _check_guards(opened.guards, inputs)
    program = _specialised(opened.program, outline, inputs, events)
    decomposed = _decomposed(program)
    unsupported = _unsupported(decomposed)
    if unsupported:
        raise _unsupported_error(source, unsupported)
    module = guard_indices(_import(source, decomposed), [spec.name for spec in inputs])
    shapes = _output_shapes(module)
    return Model(
        source=source,
        module=module,
        inputs=inputs,
        outputs=tuple(
            TensorSpec(spec.name, spec.dtype, shape)
            for spec, shape in zip(outline.outputs, shapes, strict=True)
        ),
        repairs=(),
    )


def import_torch() -> ModuleType:
    try:
        import torch
        import torch.export
    except ImportError as error:
        raise MissingToolError(
            "reading .pt2 models needs PyTorch",
            hint="pip install 'edgekit[torch]'",
        ) from error
    return torch


@dataclass(frozen=True)
class OpenedProgram:
    """A program that torch has loaded, and its outline, from one reading of the file."""

    program: ExportedProgram
    outline: ProgramOutline
    guards: tuple[str, ...] = ()


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
            f"PyTorch {torch.__version__} cannot load {source.path.name}: {_first_line(error)}",
            hint="save it again with the PyTorch that is installed on this host",
        ) from error
    return OpenedProgram(program, checked.outline, checked.guards)


def _check_guards(guards: tuple[str, ...], inputs: tuple[TensorSpec, ...]) -> None:
    """Refuse shapes for which the program was not exported."""
    shapes = {spec.name: spec.shape for spec in inputs}
    for guard in guards:
        try:
            fits = holds(guard, lambda name, axis: shapes[name][axis])
        except (KeyError, IndexError, ValueError) as error:
            raise ModelError(
                f"the program demands {guard}, which cannot be checked",
                hint="export it for fixed shapes",
            ) from error
        if not fits:
            given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            raise ModelError(
                f"the program does not take {given}: it demands {guard}",
                hint="choose a --shape that the program was exported for",
            )


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


def closed_inputs(outline: ProgramOutline, source: ModelSource) -> tuple[TensorSpec, ...]:
    """Return the inputs with every dimension known; ModelError lists the open ones."""
    names = [spec.name for spec in outline.inputs]
    for name in source.shapes:
        if name not in names:
            raise ModelError(
                f"{source.path.name} has no input '{name}'",
                hint=f"its inputs are {', '.join(names)}",
            )
    still_open = [
        spec for spec in outline.inputs if spec.open_dimensions and spec.name not in source.shapes
    ]
    if still_open:
        listed = ", ".join(f"{spec.name} {_declared(spec)}" for spec in still_open)
        raise ModelError(
            f"{source.path.name} leaves dimensions open: {listed}",
            hint=" ".join(f"--shape {spec.name}=..." for spec in still_open),
        )
    return tuple(_closed(spec, source) for spec in outline.inputs)


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


def _check_no_constants(source: ModelSource) -> None:
    if source.constants:
        raise ModelError(
            "inputs of a PyTorch program cannot be bound to constants",
            hint="bind them when the program is exported",
        )


def _declared(spec: OpenTensorSpec) -> str:
    return "[" + ", ".join(str(extent) for extent in spec.shape) + "]"


def _closed_if_given(spec: OpenTensorSpec, source: ModelSource) -> OpenTensorSpec:
    if spec.name not in source.shapes:
        return spec
    return OpenTensorSpec(spec.name, spec.dtype, _closed(spec, source).shape)


def _closed(spec: OpenTensorSpec, source: ModelSource) -> TensorSpec:
    wanted = source.shapes.get(spec.name, spec.shape)
    closed = tuple(extent for extent in wanted if isinstance(extent, int) and extent > 0)
    fits = len(closed) == len(spec.shape) and all(
        isinstance(declared, str) or declared == extent
        for declared, extent in zip(spec.shape, closed, strict=True)
    )
    if not fits:
        raise ModelError(
            f"the input '{spec.name}' is {_declared(spec)} and cannot be made {list(wanted)}",
            hint=f"--shape {spec.name}=... may change only the dimensions that have a name",
        )
    return TensorSpec(spec.name, spec.dtype, closed)


def _specialised(
    program: ExportedProgram,
    outline: ProgramOutline,
    inputs: tuple[TensorSpec, ...],
    events: Events,
) -> ExportedProgram:
    """Return the program for these shapes; one with open shapes is exported again."""
    if not any(spec.open_dimensions for spec in outline.inputs):
        return program
    torch = import_torch()
    tensors = [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in inputs]
    positional, keywords = arguments(program, tensors)
    shapes = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in inputs)
    events.note(f"exported again for {shapes}")
    try:
        with quiet_torch():
            specialised: ExportedProgram = torch.export.export(
                program.module(), positional, keywords
            )
    except Exception as error:
        raise ModelError(
            f"the program does not take {shapes}: {_first_line(error)}",
            hint="choose a --shape that the program was exported for",
        ) from error
    return specialised


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    """Decompose the program into core operators, as TVM's importer expects."""
    with quiet_torch():
        decomposed: ExportedProgram = program.run_decompositions()
    return decomposed


def _unsupported(program: ExportedProgram) -> tuple[UnsupportedOperator, ...]:
    load_tvm()
    from edgekit.models.torch.naming import NamingImporter

    known = NamingImporter().convert_map
    unknown: dict[str, list[str]] = {}
    for node in program.graph.nodes:
        name = getattr(node.target, "__name__", str(node.target))
        if node.op == "call_function" and name not in known:
            unknown.setdefault(name, []).append(node.name)
    return tuple(
        UnsupportedOperator(
            name, nodes[0], "the compiler's importer has no counterpart for it", len(nodes)
        )
        for name, nodes in unknown.items()
    )


def _unsupported_error(
    source: ModelSource, unsupported: tuple[UnsupportedOperator, ...]
) -> UnsupportedModelError:
    first = unsupported[0]
    others = sum(entry.count for entry in unsupported) - 1
    more = f", and {others} more cannot either" if others else ""
    return UnsupportedModelError(
        f"{source.path.name} uses {first.name} (node {first.node}), which cannot be imported: "
        f"{first.reason}{more}",
        hint=f"edgekit inspect {source.path.name} lists them all",
        details=tuple(
            f"{entry.name} x{entry.count}: {entry.reason} (first: node {entry.node})"
            for entry in unsupported
        ),
    )


def _import(source: ModelSource, program: ExportedProgram) -> Any:
    from edgekit.models.torch.naming import NamingImporter

    try:
        with quiet_torch():
            return NamingImporter().from_exported_program(
                program,
                keep_params_as_input=False,
                unwrap_unit_return_tuple=True,
                no_bind_return_tuple=False,
                custom_convert_map=None,
            )
    except EdgekitError:
        raise
    except Exception as error:
        raise UnsupportedModelError(
            f"{source.path.name} cannot be imported: {_first_line(error)}",
            hint="export a simpler form of the module, or save it as ONNX",
        ) from error


def _output_shapes(module: Any) -> list[tuple[int, ...]]:
    from tvm import tirx

    result = module["main"].ret_ty
    fields = result.fields if hasattr(result, "fields") else [result]
    for field in fields:
        if field.shape is None or not all(
            isinstance(extent, tirx.IntImm) for extent in field.shape
        ):
            raise UnsupportedModelError(
                "the shape of an output depends on the values of an input",
                hint="export a module whose outputs have shapes of their own",
            )
    return [tuple(int(extent) for extent in field.shape) for field in fields]


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
