"""Read a .pt2 file without torch, refuse parts that would run code, and write a new archive.

`torch.export.load` unpickles without restriction, evaluates the file's shape expressions as Python,
runs compiled code in the archive, and calls any attribute of `torch` that a graph names. A program
that `torch.export.save` writes needs only tensors, symbols and registered operators. This module
reads the file once and gives torch a new archive of only the checked parts: without pickles, and
without bytes that torch could read differently.
"""

from __future__ import annotations

import io
import math
import pickletools
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.base.errors import ModelError, UnsupportedModelError
from edgekit.base.json_reader import JsonError, read_json_object
from edgekit.base.tensors import OpenTensorSpec
from edgekit.base.wording import size
from edgekit.base.zip_reader import ZipError, ZipMember, read_zip
from edgekit.models.torch.guards import check_guard
from edgekit.models.torch.rules import RunsCode, canonical, check_words, cleaned, targets
from edgekit.models.torch.scalars import check_scalars

MAX_JSON_BYTES = 256 << 20
_JSON_DEPTH = 200
_PROGRAM = "models/model.json"
_PAYLOADS: Mapping[str, re.Pattern[str]] = {
    "weights": re.compile(r"weight_\d{1,9}", re.ASCII),
    "constants": re.compile(r"tensor_\d{1,9}", re.ASCII),
}
_TENSOR_GLOBALS = re.compile(
    r"torch\._utils _rebuild_(?:tensor_v2|parameter|parameter_with_state)"
    r"|torch\._tensor _rebuild_from_type_v2|torch Tensor|torch\.nn\.parameter Parameter"
    r"|collections OrderedDict|torch \w+Storage|(?:builtins|__builtin__) set"
)
"""The globals that pickled tensors name; those with attributes (`Dim.DYNAMIC`) name their class."""
_SAVE_AGAIN = "save it again with torch.export.save(program, 'model.pt2')"

DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    34: "uint32",
    35: "uint64",
}
BYTES_PER_ELEMENT = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "float64": 8,
    "int64": 8,
    "uint64": 8,
}

_COMPLEX = {9: "complex32", 10: "complex64", 11: "complex128"}
_UNBOUNDED = 1 << 60
"""The largest size from which a dimension has no limit."""
_STRIDED = 7
"""The number of a layout in which a tensor's elements all have a place."""


@dataclass(frozen=True)
class ProgramOutline:
    """A summary of a saved program."""

    inputs: tuple[OpenTensorSpec, ...]
    outputs: tuple[OpenTensorSpec, ...]
    operators: tuple[str, ...]
    """The operators, one entry per call, in order."""
    parameters: int
    parameter_bytes: int


@dataclass(frozen=True)
class CheckedProgram:
    """A program that runs no code when torch loads it."""

    outline: ProgramOutline
    targets: frozenset[str]
    """The operators that it calls, by torch's names."""
    guards: tuple[str, ...]
    """Its conditions on the inputs' dimensions, which guards.py reads."""
    archive: bytes
    """The archive for `torch.export.load`, of checked parts only."""


def read_program(path: Path) -> CheckedProgram:
    """Read a saved program once; a ModelError if the file is damaged or would run code."""
    try:
        members = _members(io.BytesIO(path.read_bytes()), path.name)
        document, guards, payloads = _checked(members, path.name)
        return CheckedProgram(
            _outline(document, path.name), targets(document), guards, _archive(document, payloads)
        )
    except RunsCode as found:
        raise _refusal(path.name, str(found)) from found
    except ZipError as error:
        raise ModelError(
            f"{path.name} is not a saved PyTorch program: {error}",
            hint=_SAVE_AGAIN,
        ) from error
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror or error}", hint="check its permissions"
        ) from error
    except JsonError as error:
        raise ModelError(
            f"{path.name} is not a program that torch.export.save wrote: in a description, {error}",
            hint=_SAVE_AGAIN,
        ) from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ModelError(
            f"{path.name} is not a program that torch.export.save wrote: {type(error).__name__}, "
            f"{str(error)[:200]}",
            hint=_SAVE_AGAIN,
        ) from error


def _members(stream: io.BytesIO, name: str) -> dict[str, ZipMember]:
    """List the archive's members, by the path below its only top folder."""
    members = read_zip(stream)
    folders = {path.partition("/")[0] for path in members}
    if len(folders) != 1:
        raise ModelError(
            f"{name} is not a saved PyTorch program: it has {len(folders)} top folders, not one",
            hint=_SAVE_AGAIN,
        )
    return {path.partition("/")[2]: member for path, member in members.items()}


def _checked(
    members: Mapping[str, ZipMember], name: str
) -> tuple[dict[str, Any], tuple[str, ...], dict[str, bytes]]:
    """Return the program's document, its guards and its weight files, all checked."""
    programs = [member for member in members if re.fullmatch(r"models/\w+\.json", member)]
    if programs != [_PROGRAM]:
        raise ModelError(
            f"{name} holds {len(programs)} exported programs named 'model', not one",
            hint="save it with torch.export.save(program, 'model.pt2'); a state_dict or a "
            "TorchScript file has to be exported first",
        )
    if _text(members, "byteorder", "little") != "little":
        raise ModelError(f"{name} was saved on a big-endian machine", hint=_SAVE_AGAIN)
    for member, entry in members.items():
        _check_member(member)
        if member.startswith("data/sample_inputs/") and entry.size:
            _check_pickles(entry.read())
    document = cleaned(_document(members[_PROGRAM], name))
    guards = _guards(document)
    check_words(document)
    check_scalars(document["graph_module"]["graph"])
    payloads: dict[str, bytes] = {}
    for kind in _PAYLOADS:
        payloads.update(_payloads(members, kind, name))
    return document, guards, payloads


def _guards(document: dict[str, Any]) -> tuple[str, ...]:
    """Remove and return the program's guards on its inputs, which torch would run, and those that
    it makes of the ranges of dimensions."""
    written = tuple(str(guard) for guard in document.get("guards_code") or ())
    document["guards_code"] = []
    guards = (*written, *_range_guards(document))
    for guard in guards:
        try:
            check_guard(guard)
        except ValueError as error:
            raise RunsCode(f"guards written as Python code ({guard[:80]!r})") from error
    return guards


def _range_guards(document: dict[str, Any]) -> Iterator[str]:
    """Give a guard for each bound of an input's dimension. A least size of 2 is none: torch gives
    it to every open dimension, and runs the program with 1."""
    graph, signature = document["graph_module"]["graph"], document["graph_module"]["signature"]
    ranges = document.get("range_constraints") or {}
    for spec in signature["input_specs"]:
        name = spec.get("user_input", {}).get("arg", {}).get("as_tensor", {}).get("name")
        sizes = graph["tensor_values"][name]["sizes"] if name is not None else ()
        for axis, extent in enumerate(map(_extent, sizes)):
            bounds = ranges.get(extent, {}) if isinstance(extent, str) else {}
            least, most = (_bound(bounds.get(end)) for end in ("min_val", "max_val"))
            if least is not None and least > 2:
                yield f"L[{name!r}].size()[{axis}] >= {least}"
            if most is not None and most < _UNBOUNDED:
                yield f"L[{name!r}].size()[{axis}] <= {most}"


def _bound(value: object) -> int | None:
    """Return the end of a range of sizes; None where it has none."""
    if value is not None and (type(value) is not int or not -_UNBOUNDED < value < 1 << 64):
        raise ValueError(f"a dimension is bounded by {str(value)[:40]!r}")
    return value


def _text(members: Mapping[str, ZipMember], member: str, default: str) -> str:
    return members[member].read().decode("ascii").strip() if member in members else default


def _check_member(member: str) -> None:
    """Refuse files that torch would unpickle or run; other files are left out."""
    folder, _, file = member.removeprefix("data/").partition("/")
    if member.startswith("data/aotinductor/"):
        raise RunsCode("compiled code")
    if folder in _PAYLOADS and (
        file.endswith(".pt") or file.startswith(("custom_obj_", "opaque_obj_"))
    ):
        raise RunsCode("pickled Python objects")


def _check_pickles(data: bytes) -> None:
    """Refuse sample inputs with more than tensors. They are left out in any case, but a file with
    code is refused rather than used in part."""
    for path, member in read_zip(io.BytesIO(data)).items():
        if path.endswith(".pkl"):
            for opcode, argument, _ in pickletools.genops(member.read()):
                if opcode.name in ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"):
                    raise RunsCode("sample inputs that are Python objects")
                if opcode.name == "GLOBAL" and not _TENSOR_GLOBALS.fullmatch(str(argument)):
                    raise RunsCode(f"sample inputs that call {argument}")


def _document(member: ZipMember, name: str) -> dict[str, Any]:
    if member.size > MAX_JSON_BYTES:
        raise ModelError(
            f"{name} has an outline of {size(member.size)}",
            hint="a real program's is far smaller; check where the file comes from",
        )
    return read_json_object(member.read(), depth=_JSON_DEPTH)


def _payloads(members: Mapping[str, ZipMember], kind: str, name: str) -> dict[str, bytes]:
    """Return the weights' bytes, and the file that maps names to them."""
    index = f"data/{kind}/model_{kind}_config.json"
    document = _document(members[index], name)
    check_words(document)
    found = {index: canonical(document)}
    for weight, entry in document["config"].items():
        check_words({"fqn": weight})
        if entry.get("use_pickle"):
            raise RunsCode("pickled weights")
        file = str(entry["path_name"])
        if not _PAYLOADS[kind].fullmatch(file):
            raise RunsCode(f"weights in {file[:80]!r}")
        path = f"data/{kind}/{file}"
        if path not in found:
            found[path] = members[path].read()
        if not found[path] and _elements(entry["tensor_meta"]):
            raise ModelError(
                f"{name} holds no values for {weight}", hint="save the program with its weights"
            )
    return found


def _elements(tensor: dict[str, Any]) -> int:
    return math.prod([int(size["as_int"]) for size in tensor["sizes"]])


def _archive(document: dict[str, Any], payloads: Mapping[str, bytes]) -> bytes:
    """Build the archive for torch, without sample inputs, which are pickles."""
    files = {
        "archive_format": b"pt2",
        "archive_version": b"0",
        "byteorder": b"little",
        ".data/version": b"6\n",
        _PROGRAM: canonical(document),
        "data/sample_inputs/model.pt": b"",
        **payloads,
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for path, content in files.items():
            archive.writestr(f"model/{path}", content)
    return stream.getvalue()


def _refusal(name: str, what: str) -> ModelError:
    return ModelError(
        f"{name} holds {what}; loading it could run any code, so edgekit does not",
        hint="save it again with torch.export.save(program, 'model.pt2'), weights as plain tensors",
    )


def _outline(document: dict[str, Any], name: str) -> ProgramOutline:
    graph, signature = document["graph_module"]["graph"], document["graph_module"]["signature"]
    values = graph["tensor_values"]
    inputs = [
        _user_tensor(spec["user_input"]["arg"], name, "input")
        for spec in signature["input_specs"]
        if "user_input" in spec
    ]
    outputs = [
        _user_tensor(spec["user_output"]["arg"], name, "output")
        for spec in signature["output_specs"]
        if "user_output" in spec
    ]
    weights = [
        values[entry["arg"]["name"]]
        for spec in signature["input_specs"]
        for kind, entry in spec.items()
        if kind in ("parameter", "buffer", "tensor_constant")
    ]
    shapes = [[int(size["as_int"]) for size in weight["sizes"]] for weight in weights]
    sizes = [BYTES_PER_ELEMENT.get(_dtype(weight["dtype"]), 0) for weight in weights]
    counts = [math.prod(shape) for shape in shapes]
    return ProgramOutline(
        inputs=tuple(_spec(values[tensor], tensor) for tensor in inputs),
        outputs=tuple(
            _spec(values[tensor], _unique(outputs, place)) for place, tensor in enumerate(outputs)
        ),
        operators=tuple(_operator(node["target"]) for node in graph["nodes"]),
        parameters=sum(counts),
        parameter_bytes=sum(count * size for count, size in zip(counts, sizes, strict=True)),
    )


def _user_tensor(argument: dict[str, Any], name: str, role: str) -> str:
    if "as_tensor" not in argument:
        raise ModelError(
            f"{name} has an {role} that is not a tensor ({', '.join(argument)})",
            hint="export a module whose inputs and outputs are tensors",
        )
    return str(argument["as_tensor"]["name"])


def _unique(names: list[str], place: int) -> str:
    name = names[place]
    return name if name not in names[:place] else f"{name}@{place}"


def _spec(value: dict[str, Any], name: str) -> OpenTensorSpec:
    if value.get("layout", _STRIDED) != _STRIDED:
        raise UnsupportedModelError(
            f"{name} is a sparse tensor, and edgekit passes only dense ones",
            hint="export a module that returns its .to_dense(), or that makes it from dense inputs",
        )
    if value["dtype"] in _COMPLEX:
        raise UnsupportedModelError(
            f"{name} holds complex numbers ({_COMPLEX[value['dtype']]}), and edgekit passes only "
            "real ones",
            hint="export a module that takes and returns pairs of real numbers: "
            "torch.view_as_real(x), torch.view_as_complex(x)",
        )
    if value["dtype"] not in DTYPES:
        raise UnsupportedModelError(
            f"{name} is of a type that edgekit does not pass: number {value['dtype']} of "
            "PyTorch's, such as float8",
            hint="export a module that converts it, with .to(torch.float32)",
        )
    return OpenTensorSpec(name, _dtype(value["dtype"]), tuple(_extent(s) for s in value["sizes"]))


def _dtype(number: int) -> str:
    return DTYPES.get(number, f"type number {number}")


def _extent(size: dict[str, Any]) -> int | str:
    if "as_int" in size:
        return int(size["as_int"])
    expression = str(size["as_expr"]["expr_str"])
    return re.sub(r"Symbol\('(\w+)'[^)]*\)", r"\1", expression)


def _operator(target: str) -> str:
    return target.removeprefix("torch.ops.").removesuffix(".default")
