"""Read an ONNX file and its weight files, trusting neither."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import ModelError, StorageError

if TYPE_CHECKING:
    import onnx

    from edgekit.models.model import ModelSource

OLDEST_IR_VERSION = 3


def read_structure(path: Path) -> onnx.ModelProto:
    """Read the model without its external weights; `ModelError` if it is not an ONNX model."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    from edgekit.models.onnx.soundness import check_sound

    data = _read_bytes(path)
    if not data:
        raise ModelError(f"{path.name} is empty", hint="export the model again")
    try:
        model = onnx.ModelProto.FromString(data)
    except (DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(path, data) from error
    if not model.ir_version or not model.HasField("graph"):
        raise ModelError(
            f"{path.name} holds no ONNX graph",
            hint="check that the file is a model, and not a tensor or a training checkpoint",
        )
    if model.ir_version < OLDEST_IR_VERSION:
        raise ModelError(
            f"{path.name} has ONNX IR version {model.ir_version}; "
            f"the oldest that can be read is {OLDEST_IR_VERSION}",
            hint="convert it with onnx.version_converter, or export it again",
        )
    if not model.graph.output:
        raise ModelError(f"{path.name} has a graph without outputs", hint="export the model again")
    check_sound(path.name, model, tensors(model))
    return model


def read_model(path: Path) -> onnx.ModelProto:
    """Read the model with its external weights."""
    import onnx
    from onnx.external_data_helper import load_external_data_for_model

    model = read_structure(path)
    if not external_files(path, model):
        return model
    try:
        load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(
            f"the external weights of {path.name} can't be read",
            hint="copy the model again together with its weight files",
            details=(str(error).splitlines()[0],),
        ) from error
    return model


def read_program(source: ModelSource, *, weights: bool = True) -> onnx.ModelProto:
    """Read the model in the shapes that were given, with its external weights or without them."""
    from edgekit.models.onnx.maps import without_maps

    model = without_maps(read_model(source.path) if weights else read_structure(source.path))
    if source.adaptation.reshape:
        from edgekit.models.onnx.reshaping import with_given_shapes

        model = with_given_shapes(model, source)
    return model


def external_files(path: Path, model: onnx.ModelProto) -> tuple[Path, ...]:
    """Return the external weight files, each checked to exist inside the model's folder."""
    root = path.parent.resolve()
    found: dict[str, Path] = {}
    for tensor in tensors(model):
        location = _external_location(tensor)
        if location is None or location in found:
            continue
        target = (root / location).resolve()
        if not target.is_relative_to(root):
            raise ModelError(
                f"{path.name} keeps weights in {location!r}, outside its own folder",
                hint="only weight files beside the model are read",
            )
        if not target.is_file():
            raise ModelError(
                f"{path.name} needs the weight file {location!r}, which is missing",
                hint=f"copy it to {root / location}",
            )
        found[location] = target
    return tuple(found[name] for name in sorted(found))


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor stored in the model: initializers and attributes, subgraphs included."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: list[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _graph_tensors(attribute.g)
            for graph in attribute.graphs:
                yield from _graph_tensors(graph)


def _external_location(tensor: onnx.TensorProto) -> str | None:
    import onnx

    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return None
    for entry in tensor.external_data:
        if entry.key == "location":
            return str(entry.value)
    raise ModelError(
        f"tensor {tensor.name!r} is said to be stored outside the model, but not where",
        hint="export the model again",
    )


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ModelError(f"there is no file {path}", hint="check the path") from error
    except IsADirectoryError as error:
        raise ModelError(f"{path} is a folder", hint="name the .onnx file in it") from error
    except OSError as error:
        raise StorageError(
            f"{path} can't be read: {error.strerror}", hint="check its permissions"
        ) from error


def _unreadable(path: Path, data: bytes) -> ModelError:
    if _looks_like_text(data):
        return ModelError(
            f"{path.name} is a text file, not an ONNX model",
            hint="a few hundred bytes of text is often a Git LFS pointer: run `git lfs pull`",
        )
    return ModelError(
        f"{path.name} is damaged or cut off: it is not a readable ONNX model",
        hint="copy or download it again and compare its size",
    )


def _looks_like_text(data: bytes) -> bool:
    try:
        head = data[:512].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\r\n\t" for character in head)
