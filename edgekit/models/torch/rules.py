"""Check every text in a saved program, so that torch runs no code while it loads the program.

Torch looks up targets as attributes, evaluates dimensions, imports classes that a description of
inputs names, and writes every name into Python source that it runs. So each text must be of a known
kind: an operator from a list, a dimension of plain arithmetic, a description of tuples, lists and
dictionaries, or a plain name. Anything else is refused, under any key.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from edgekit.base.json_reader import read_json
from edgekit.models.torch.expressions import check_expression

_LONGEST_TEXT = 4096
_SHOWN = 80

_CONTROL = (
    "cond|while_loop|map_impl|scan|associative_scan|out_dtype|strict_mode|invoke_subgraph"
    "|wrap_with_set_grad_enabled|wrap_with_autocast|tag_activation_checkpoint"
)
_ARITHMETIC = (
    "eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_|not_|xor|abs"
    "|lshift|rshift|getitem"
)
_LOGIC = "__(?:and|or|xor|lshift|rshift|iand|ior|ixor|ilshift|irshift)__"
_WORD = rf"(?:{_LOGIC}|(?!__)[A-Za-z_]\w*)"
_TARGET = re.compile(
    rf"torch\.ops\.(?:aten|prims|quantized_decomposed|torchvision)\.{_WORD}\.(?!_)\w+"
    rf"|torch\.ops\.higher_order\.(?:{_CONTROL})"
    rf"|_operator\.(?:{_ARITHMETIC})"
    r"|math\.(?:trunc|ceil|floor|sqrt)"
    r"|torch\.sym_(?:not|int|float|ite|max|min|sqrt|sum)"
    r"|torch\._check(?:_is_size)?",
    re.ASCII,
)
_REACHES_OUT = re.compile(
    r"torch\.ops\.\w+\.(?:from_file|save|load\w*|_print|warn|_test_\w+|record_stream|set_data"
    r"|_\w*pin_memory|format)\b.*"
)
"""Operators that access files, output or the process, not only tensors."""

_IDENTIFIER = re.compile(r"(?:(?!\d)\w+)?")
_PATH = re.compile(r"[\w.\-]*")
_CLASS = re.compile(r"(?:.*\.)?__\w+__(?:\..*)?")
"""A name that leads into Python's own objects."""
_VERSION = re.compile(r"[\w.+\-]*", re.ASCII)
_CONTAINERS = frozenset(
    {
        "builtins.tuple",
        "builtins.list",
        "builtins.dict",
        "collections.OrderedDict",
        "torch.fx.immutable_collections.immutable_list",
        "torch.fx.immutable_collections.immutable_dict",
    }
)


class RunsCode(Exception):
    """Raised if the program contains something that could run code; the message names it."""


def cleaned(value: Any) -> Any:
    """Return the document without each node's history and notes, which torch does not need."""
    if isinstance(value, dict):
        kept = {key: cleaned(item) for key, item in value.items()}
        if "metadata" in kept and kept.keys() & {"target", "graph"}:
            kept["metadata"] = {}
        return kept
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    return value


def check_words(document: object) -> None:
    """Refuse a document with a text of no known kind; RunsCode names the text."""
    for key, value in _walk(document):
        if isinstance(value, str):
            _check_text(key, value)
        elif isinstance(value, dict):
            for name in value:
                _check_name(name)


def targets(document: object) -> frozenset[str]:
    """Return the operators that a document calls or passes as arguments."""
    return frozenset(
        value
        for key, value in _walk(document)
        if key in ("target", "as_operator") and isinstance(value, str)
    )


def _walk(document: object) -> Iterator[tuple[str, object]]:
    """Yield every value with its key; items of a list have the list's key."""
    waiting: list[tuple[str, object]] = [("", document)]
    while waiting:
        key, value = waiting.pop()
        yield key, value
        if isinstance(value, dict):
            waiting.extend(value.items())
        elif isinstance(value, list):
            waiting.extend((key, item) for item in value)


def _check_text(key: str, text: str) -> None:
    _KINDS.get(key, _check_name)(text)


def _check_target(text: str) -> None:
    if not _TARGET.fullmatch(text) or _REACHES_OUT.fullmatch(text):
        raise RunsCode(f"a call of {text[:_SHOWN]!r}")


def _check_expression(text: str) -> None:
    try:
        check_expression(text)
    except ValueError as error:
        raise RunsCode(f"a dimension written as {text[:_SHOWN]!r}") from error


def _check_value(text: str) -> None:
    if len(text) > _LONGEST_TEXT or not text.isprintable():
        raise RunsCode(f"a text that no operator takes, {text[:_SHOWN]!r}")


def _check_name(text: str) -> None:
    """Check a path of names, such as a weight's."""
    plain = _PATH.fullmatch(text) is not None and unicodedata.is_normalized("NFKC", text)
    if not plain or len(text) > _LONGEST_TEXT:
        raise RunsCode(f"a name that is no name, {text[:_SHOWN]!r}")


def _check_weight(text: str) -> None:
    _check_name(text)
    if _CLASS.fullmatch(text):
        raise RunsCode(f"a weight called {text[:_SHOWN]!r}")


def _check_identifier(text: str) -> None:
    _check_name(text)
    if not _IDENTIFIER.fullmatch(text):
        raise RunsCode(f"a name that is no name, {text[:_SHOWN]!r}")


def _check_version(text: str) -> None:
    if not _VERSION.fullmatch(text):
        raise RunsCode(f"a version that is none, {text[:_SHOWN]!r}")


def _check_structure(text: str) -> None:
    """Check the nesting of inputs or outputs; torch imports the classes that it names."""
    protocol, outermost = read_json(text)
    waiting = [outermost]
    if protocol != 1:
        raise ValueError(f"its inputs are described in protocol {protocol!r}")
    while waiting:
        spec = waiting.pop()
        kind, context = spec["type"], spec["context"]
        waiting.extend(spec["children_spec"])
        if kind is None and context is None:
            continue
        if kind not in _CONTAINERS:
            raise RunsCode(f"inputs or outputs in a {str(kind)[:_SHOWN]!r}")
        keys = read_json(context)
        if keys is not None and not isinstance(keys, list):
            raise RunsCode(f"inputs or outputs described by {context[:_SHOWN]!r}")
        for key in keys or ():
            if isinstance(key, str):
                _check_name(key)
            elif not isinstance(key, int):
                raise RunsCode(f"inputs or outputs described by {context[:_SHOWN]!r}")


_KINDS: dict[str, Callable[[str], None]] = {
    "target": _check_target,
    "as_operator": _check_target,
    "expr_str": _check_expression,
    "as_string": _check_value,
    "as_strings": _check_value,
    "in_spec": _check_structure,
    "out_spec": _check_structure,
    "name": _check_identifier,
    "as_name": _check_identifier,
    "forward_arg_names": _check_identifier,
    "parameter_name": _check_weight,
    "buffer_name": _check_weight,
    "tensor_constant_name": _check_weight,
    "custom_obj_name": _check_weight,
    "fqn": _check_weight,
    "torch_version": _check_version,
}
"""The check of a text by its key; under any other key it must be a path of names."""


def canonical(document: object) -> bytes:
    """Return the document as JSON that all readers interpret alike."""
    return json.dumps(document, allow_nan=False).encode()
