"""A manifest has one form; whatever else is offered as one is refused with a BundleError."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.bundles import make_bundle, sealed
from support.examples import examples

from edgekit.base.errors import BundleError
from edgekit.base.tensors import Quantization
from edgekit.bundle.manifest import InputEntry, Manifest, manifest_text, parse_manifest
from edgekit.bundle.manifest_vectors import ExpectedEntry
from edgekit.models.comparison import Leeway

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return make_bundle(tmp_path_factory.mktemp("manifest") / "bundle").manifest


@pytest.fixture(scope="module")
def document(manifest: Manifest) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(manifest_text(manifest))
    return loaded


def test_what_is_written_is_read_back(manifest: Manifest) -> None:
    assert parse_manifest(manifest_text(manifest).encode()) == manifest


def test_the_text_is_the_same_every_time_and_ends_with_a_newline(manifest: Manifest) -> None:
    assert manifest_text(manifest) == manifest_text(copy.deepcopy(manifest))
    assert manifest_text(manifest).endswith("}\n")


def test_sealing_in_the_tests_is_what_edgekit_does(
    manifest: Manifest, document: dict[str, Any]
) -> None:
    assert sealed(document) == manifest_text(manifest).encode()


def test_names_of_any_language_survive(manifest: Manifest) -> None:
    entry = manifest.outputs[0]
    spec = replace(
        entry.spec, name='größe "\\\n\x00 画像 🦀', quantization=Quantization((1e-7,), (-5,), 0)
    )
    changed = replace(manifest, outputs=(replace(entry, spec=spec),))
    assert parse_manifest(manifest_text(changed).encode()) == changed


def with_expected(manifest: Manifest, **changes: Any) -> Manifest:
    """The manifest with another only expected output."""
    (vector,) = manifest.vectors
    expected = replace(vector.outputs[0], **changes)
    return replace(manifest, vectors=(replace(vector, outputs=(expected,)),))


def test_what_an_output_may_be_off_by_is_kept_and_checked(manifest: Manifest) -> None:
    changed = with_expected(manifest, leeway=Leeway(0.5, 0.25, "one step of a node"))
    assert parse_manifest(manifest_text(changed).encode()) == changed
    for wrong in (Leeway(-0.5, 0.25, ""), Leeway(0.5, 1.5, ""), Leeway(0.5, -1.0, "")):
        with pytest.raises(BundleError):
            parse_manifest(manifest_text(with_expected(manifest, leeway=wrong)).encode())


def test_vectors_that_do_not_fit_the_model_are_refused(manifest: Manifest) -> None:
    (vector,) = manifest.vectors
    wrong: dict[str, tuple[Any, ...]] = {
        "no reference vector": (),
        "two reference vectors of one name": (vector, vector),
        "a reference vector of the name": (replace(vector, name="../up"),),
        "must list 2 input files": (replace(vector, inputs=vector.inputs[:1]),),
        "expected outputs just where": (vector, replace(vector, name="zeros", outputs=())),
        "lists no reference-output": (replace(vector, outputs=(ExpectedEntry("model.so", None),)),),
    }
    for sentence, vectors in wrong.items():
        with pytest.raises(BundleError, match=sentence):
            parse_manifest(manifest_text(replace(manifest, vectors=vectors)).encode())


def as_version_5(document: dict[str, Any]) -> dict[str, Any]:
    """The same bundle as edgekit wrote it before a bundle held several vectors."""
    old = {key: value for key, value in document.items() if key not in ("vectors", "left_out")}
    (vector,) = document["vectors"]
    old["schema_version"] = 5
    del old["postprocess"], old["steps"]
    old["inputs"] = [
        {**entry, "reference": path}
        for entry, path in zip(document["inputs"], vector["inputs"], strict=True)
    ]
    old["outputs"] = [
        {**entry, "reference": expected["file"], "leeway": expected["leeway"]}
        for entry, expected in zip(document["outputs"], vector["outputs"], strict=True)
    ]
    return old


def test_a_manifest_of_the_version_before_is_read(
    manifest: Manifest, document: dict[str, Any]
) -> None:
    old = as_version_5(document)

    read = parse_manifest(sealed(old))
    assert read.inputs[0].preprocess is not None and read.inputs[0].preprocess.on == "host"
    on_host = [one.preprocess and replace(one.preprocess, on="host") for one in manifest.inputs]
    inputs = (InputEntry(e.spec, p) for e, p in zip(manifest.inputs, on_host, strict=True))
    assert read == replace(manifest, left_out=(), steps=(), inputs=tuple(inputs))

    old["outputs"][0]["leeway"] = {"allowed": 0.5, "share": 0.25, "reason": "ties"}
    leeway = parse_manifest(sealed(old)).vectors[0].outputs[0].leeway
    assert leeway == Leeway(0.5, 0.25, "ties")
    for key, value in (("reference", None), ("reference", "model.so"), ("more", 1)):
        wrong = as_version_5(document)
        wrong["outputs"][0][key] = value
        with pytest.raises(BundleError):
            parse_manifest(sealed(wrong))


def test_a_manifest_of_the_version_before_without_an_oracle_is_read(
    document: dict[str, Any],
) -> None:
    old = as_version_5(document)
    old["oracle"] = None
    old["outputs"][0]["reference"] = None

    manifest = parse_manifest(sealed(old))

    assert manifest.oracle is None
    assert manifest.vectors[0].outputs == ()


def test_a_number_that_json_cannot_hold_is_not_written(manifest: Manifest) -> None:
    entry = manifest.outputs[0]
    spec = replace(entry.spec, quantization=Quantization((float("nan"),), (0,)))
    with pytest.raises(BundleError):
        manifest_text(replace(manifest, outputs=(replace(entry, spec=spec),)))


def test_any_changed_byte_is_noticed(manifest: Manifest) -> None:
    text = manifest_text(manifest).encode()
    for position in range(len(text)):
        changed = bytearray(text)
        changed[position] ^= 0x01
        with pytest.raises(BundleError):
            parse_manifest(bytes(changed))


def test_another_schema_version_is_named_as_such(document: dict[str, Any]) -> None:
    newer = {"schema_version": 9, "edgekit_version": "9.9.0", "things": "unheard of"}
    with pytest.raises(BundleError) as caught:
        parse_manifest(json.dumps(newer).encode())
    assert "schema version 9" in caught.value.message
    assert "9.9.0" in caught.value.message
    assert caught.value.hint is not None
    assert "build the model again" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"hello",
        b"[]",
        b"null",
        b"3",
        b'"text"',
        b"{}",
        b'{"schema_version": "1"}',
        b'{"schema_version": true}',
        b'{"schema_version": 1e400}',
        b'{"schema_version": NaN}',
        b'{"schema_version": 1' + b"0" * 5000 + b"}",
        b'{"schema_version": 1, "a": ' + b"[" * 100_000,
        b"\xff\xfe",
        b"PK\x03\x04",
    ],
)
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(BundleError):
        parse_manifest(text)


def _set(*path: str | int, to: object) -> Change:
    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to

    return change


WRONG: dict[str, Change] = {
    "an unknown key": _set("extra", to=1),
    "an unknown key inside": _set("model", "extra", to=1),
    "a missing key": lambda document: document.pop("seed"),
    "a missing key inside": lambda document: document["inputs"][0]["spec"].pop("dtype"),
    "text for a number": _set("seed", to="7"),
    "true for a number": _set("seed", to=True),
    "a number for text": _set("target", to=3),
    "a target that is no JSON": _set("target", to='{"kind":'),
    "a list for a target": _set("target", to="[1]"),
    "numbers for a target's features": _set("target", to='{"kind": "llvm", "mattr": [1]}'),
    "a number for a target's host": _set("target", to='{"kind": "cuda", "host": 3}'),
    "null for a table": _set("model", to=None),
    "a list for a table": _set("board", to=[]),
    "a table for a list": _set("files", to={}),
    "a number for a flag": _set("reproducible", to=1),
    "a role nobody has": _set("files", 0, "role", to="virus"),
    "a dtype nobody has": _set("inputs", 0, "spec", "dtype", to="float128"),
    "a negative extent": _set("inputs", 0, "spec", "shape", to=[-1, 3]),
    "a fractional extent": _set("inputs", 0, "spec", "shape", to=[1.5]),
    "a huge extent": _set("inputs", 0, "spec", "shape", to=[2**60]),
    "a huge size": _set("files", 0, "size", to=2**70),
    "a negative size": _set("files", 0, "size", to=-1),
    "no hash": _set("files", 0, "sha256", to="../../etc/passwd"),
    "a hash in capitals": _set("files", 0, "sha256", to="A" * 64),
    "more than a hash": _set("files", 0, "sha256", to="a" * 64 + "\n"),
    "scales without zero points": _set(
        "inputs", 0, "spec", "quantization", to={"scales": [1.0], "zero_points": [], "axis": None}
    ),
    "a quantisation without a scale": _set(
        "inputs", 0, "spec", "quantization", to={"scales": [], "zero_points": [], "axis": None}
    ),
    "preprocessing nobody knows": _set("inputs", 0, "preprocess", "layout", to="NWHC"),
    "a file twice": lambda document: document["files"].append(document["files"][0]),
    "itself as a file": _set("files", 0, "path", to="manifest.json"),
    "no library": _set("files", 0, "role", to="reference-input"),
    "two libraries": lambda document: document["files"].append(
        {**document["files"][0], "path": "second.so", "role": "library"}
    ),
    "a reference that is no file": _set("inputs", 0, "reference", to="reference/nothing.npy"),
    "a reference of another role": _set("inputs", 0, "reference", to="model.so"),
    "two inputs of one name": _set("inputs", 1, "spec", "name", to="image"),
    "two outputs of one name": lambda document: document["outputs"].append(document["outputs"][0]),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_manifest_is_refused_even_when_sealed(
    document: dict[str, Any], change: Change
) -> None:
    wrong = copy.deepcopy(document)
    change(wrong)
    with pytest.raises(BundleError) as caught:
        parse_manifest(sealed(wrong))
    assert "changed after it was written" not in caught.value.message
    assert caught.value.message.isprintable()


def test_an_empty_tensor_is_no_mistake(manifest: Manifest) -> None:
    entry = manifest.outputs[0]
    changed = replace(manifest, outputs=(replace(entry, spec=replace(entry.spec, shape=(0, 4))),))
    assert parse_manifest(manifest_text(changed).encode()) == changed


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def _places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inside: list[tuple[str | int, ...]] = [path] if path else []
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        inside += _places(item, (*path, key))
    return inside


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_mutation_raises_anything_but_a_bundle_error(
    document: dict[str, Any], data: st.DataObject
) -> None:
    mutated = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        _set(*data.draw(st.sampled_from(_places(mutated))), to=data.draw(JSON))(mutated)
    try:
        parsed = parse_manifest(sealed(mutated))
    except BundleError:
        return
    assert parse_manifest(manifest_text(parsed).encode()) == parsed


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_bundle_error(text: bytes) -> None:
    with pytest.raises(BundleError):
        parse_manifest(text)


RUNNER = {
    "backend": "tensorrt",
    "built": "device",
    "source": "runner/edgekit_tensorrt.cc",
    "library": "libedgekit_tensorrt.so",
    "version": "",
}
SOURCE = {"path": RUNNER["source"], "sha256": "0" * 64, "size": 1, "role": "runner-source"}


def test_a_part_that_the_device_compiles_is_read_back(document: dict[str, Any]) -> None:
    changed = copy.deepcopy(document)
    changed["runners"].append(RUNNER)
    changed["files"].append(SOURCE)

    (runner,) = parse_manifest(sealed(changed)).runners

    assert (runner.backend, runner.built) == ("tensorrt", "device")


@pytest.mark.parametrize(
    ("runner", "files", "why"),
    [
        (RUNNER, [], "source of each"),
        (None, [SOURCE], "source of each"),
        ({**RUNNER, "built": "host"}, [SOURCE], "compiled with the model"),
        ({**RUNNER, "built": "elsewhere"}, [SOURCE], "built"),
        ({**RUNNER, "library": "libother.so"}, [SOURCE], "no backend's"),
        ({**RUNNER, "source": "runner/$(reboot).cc"}, [SOURCE], "no backend's"),
        ({**RUNNER, "backend": "../x"}, [SOURCE], "no backend's"),
        (RUNNER, [SOURCE, {**SOURCE, "path": RUNNER["library"], "role": "shared-library"}], "just"),
    ],
)
def test_parts_of_a_model_that_can_not_be_are_refused(
    runner: dict[str, Any] | None, files: list[dict[str, Any]], why: str, document: dict[str, Any]
) -> None:
    changed = copy.deepcopy(document)
    changed["runners"] += [runner] if runner else []
    changed["files"] += files

    with pytest.raises(BundleError, match=why):
        parse_manifest(sealed(changed))
