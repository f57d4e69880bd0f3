"""Looks into a .pt2 file without torch, and refuses what would run code while it loads.

`torch.export.load` unpickles without restraint, evaluates the file's shape expressions as Python
and calls whatever attribute of `torch` a graph names. A program that `torch.export.save` writes
needs none of that beyond tensors, symbols and registered operators; only such a file gets through.
What is left is torch's own reading of a zip file, JSON and raw tensor bytes.
"""

from __future__ import annotations

import io
import json
import math
import pickletools
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.errors import ModelError
from edgekit.tensors import OpenTensorSpec

MAX_JSON_BYTES = 256 << 20
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
    "float64": 8,
    "int64": 8,
}
TARGETS = re.compile(
    r"torch\.ops\.(aten|prims|higher_order|quantized_decomposed|torchvision)\.\w+(\.\w+)?"
    r"|_operator\.\w+|math\.\w+|torch\.sym_\w+|torch\._check\w*"
)
EXPRESSION = re.compile(r"(?:[A-Za-z_]\w*|\d+|'[a-z]+\d+'|[\s+\-*/(),=<>!&|])*")
NAMES_IN_EXPRESSIONS = re.compile(
    r"[a-z]{1,2}\d+|Symbol|Integer|Rational|Add|Mul|Pow|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv"
    r"|ModularIndexing|Max|Min|Eq|Ne|Lt|Le|Gt|Ge|True|False"
    r"|integer|positive|nonnegative|negative|nonzero|real"
)
TENSOR_PICKLE_GLOBALS = frozenset(
    {
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_parameter",
        "collections OrderedDict",
    }
)


@dataclass(frozen=True)
class ProgramOutline:
    """What a saved program says about itself."""

    inputs: tuple[OpenTensorSpec, ...]
    outputs: tuple[OpenTensorSpec, ...]
    operators: tuple[str, ...]
    """One entry a call, in order."""
    parameters: int
    parameter_bytes: int


def read_outline(path: Path) -> ProgramOutline:
    """The program's outline; a ModelError if the file is damaged or would run code."""
    try:
        with zipfile.ZipFile(path) as archive:
            document = _safe_document(archive, path.name)
        return _outline(document, path.name)
    except zipfile.BadZipFile as error:
        raise ModelError(
            f"{path.name} is not a saved PyTorch program: it is not a whole zip file",
            hint="save it again with torch.export.save(program, 'model.pt2')",
        ) from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{path.name} is not a program that torch.export.save wrote: {type(error).__name__}, "
            f"{error}",
            hint="save it again with torch.export.save(program, 'model.pt2')",
        ) from error


def _safe_document(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    members = {_inner(entry.filename): entry for entry in archive.infolist()}
    programs = [member for member in members if re.fullmatch(r"models/\w+\.json", member)]
    if programs != ["models/model.json"]:
        raise ModelError(
            f"{name} holds {len(programs)} exported programs named 'model', not one",
            hint="save it with torch.export.save(program, 'model.pt2'); a state_dict or a "
            "TorchScript file has to be exported first",
        )
    for member, entry in members.items():
        if member.startswith("data/"):
            _check_data(archive, member, entry, name)
    document = json.loads(_read(archive, members["models/model.json"], name))
    for key, value in _walk(document):
        _check_value(key, value, name)
    if document.get("guards_code"):
        raise _refusal(name, "guards written as Python code")
    if not isinstance(document, dict):
        raise ValueError("its outline is not an object")
    return document


def _inner(member: str) -> str:
    """The path below the archive's own top folder."""
    return member.partition("/")[2]


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> bytes:
    if entry.file_size > MAX_JSON_BYTES:
        raise ModelError(
            f"{name} has an outline of {entry.file_size >> 20} MiB",
            hint="a real program's is far smaller; check where the file comes from",
        )
    return archive.read(entry)


def _check_data(archive: zipfile.ZipFile, member: str, entry: zipfile.ZipInfo, name: str) -> None:
    folder, _, file = member.removeprefix("data/").partition("/")
    if folder == "sample_inputs":
        _check_pickle(_read(archive, entry, name), name)
    elif file.endswith(".json"):
        for key, value in _walk(json.loads(_read(archive, entry, name))):
            if key == "use_pickle" and value:
                raise _refusal(name, "pickled weights")
    elif file.endswith(".pt") or file.startswith(("custom_obj_", "opaque_obj_")):
        raise _refusal(name, "pickled Python objects")


def _check_pickle(data: bytes, name: str) -> None:
    """Sample inputs are a torch pickle; torch falls back to unpickling anything."""
    with zipfile.ZipFile(io.BytesIO(data)) as inner:
        pickles = [entry for entry in inner.infolist() if entry.filename.endswith("data.pkl")]
        for entry in pickles:
            _check_globals(_read(inner, entry, name), name)


def _check_globals(data: bytes, name: str) -> None:
    strings: list[str] = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"):
            raise _refusal(name, "sample inputs that are Python objects")
        if opcode.name == "GLOBAL":
            strings.append(str(argument))
    for found in strings:
        if found not in TENSOR_PICKLE_GLOBALS and not re.fullmatch(r"torch \w+Storage", found):
            raise _refusal(name, f"sample inputs that call {found}")


def _walk(document: object) -> Iterator[tuple[str, object]]:
    """Every key and value, however deep."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield str(key), value
            yield from _walk(value)
    elif isinstance(document, list):
        for value in document:
            yield from _walk(value)


def _check_value(key: str, value: object, name: str) -> None:
    if key == "target" and isinstance(value, str) and not TARGETS.fullmatch(value):
        raise _refusal(name, f"a call of {value[:80]!r}")
    if key == "expr_str" and not _is_plain_expression(value):
        raise _refusal(name, f"a dimension written as {str(value)[:80]!r}")


def _is_plain_expression(value: object) -> bool:
    if not isinstance(value, str) or len(value) > 2000 or not EXPRESSION.fullmatch(value):
        return False
    return all(NAMES_IN_EXPRESSIONS.fullmatch(word) for word in re.findall(r"[A-Za-z_]\w*", value))


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
