"""The key of a build follows what decides its bytes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest

from edgekit.backends.measurements import Measured
from edgekit.backends.plan import OffloadPlan
from edgekit.building.key import build_key, package_digest
from edgekit.building.request import BuildRequest
from edgekit.compiler.schedules.choices import Choices, ProductChoice
from edgekit.cross.toolchain import Compiler
from edgekit.models.ends import Ends
from edgekit.models.model import ModelFormat, ModelSource
from edgekit.models.preprocess import Preprocess
from edgekit.profiles.board import load_board
from edgekit.profiles.offload import Rates
from edgekit.profiles.toolchain import load_toolchain

COMPILER = Compiler(Path("/usr/bin/cc"), (), "12.2.0", "cc (Debian) 12.2.0")
Change = Callable[[BuildRequest], BuildRequest]


@pytest.fixture
def request_() -> BuildRequest:
    source = ModelSource(Path("/models/net.onnx"), "onnx", "a" * 64)
    return BuildRequest(source, load_board("rpi4"), load_toolchain("aarch64-linux-gnu"), seed=0)


def with_ends(request: BuildRequest, preprocess: dict[str, Preprocess]) -> BuildRequest:
    return replace(request, source=replace(request.source, ends=Ends(preprocess)))


def _board(**changes: object) -> Change:
    return lambda request: replace(request, board=replace(request.board, **changes))  # type: ignore[arg-type]


def _toolchain(**changes: object) -> Change:
    return lambda request: replace(
        request,
        toolchain=replace(request.toolchain, **changes),  # type: ignore[arg-type]
    )


def _source(**changes: object) -> Change:
    return lambda request: replace(request, source=replace(request.source, **changes))  # type: ignore[arg-type]


DECIDES: dict[str, Change] = {
    "what a model in C is packed as": lambda r: replace(r, code_format="arduino"),
    "model": _source(sha256="b" * 64),
    "model's file name": _source(path=Path("/models/other.onnx")),
    "board's name": _board(name="rpi5"),
    "target": lambda r: replace(
        r, board=replace(r.board, target=replace(r.board.target, cpu="cortex-a76"))
    ),
    "flags of the CPU": lambda r: replace(
        r, board=replace(r.board, cpu=replace(r.board.cpu, compile_flags=("-mcpu=x",)))
    ),
    "board's kind": _board(kind="baremetal"),
    "triple": _toolchain(triple="arm-linux-gnueabihf"),
    "tools": lambda r: replace(
        r, toolchain=replace(r.toolchain, tools=replace(r.toolchain.tools, cc="clang"))
    ),
    "compile flags": _toolchain(compile_flags=("-O1",)),
    "link flags": _toolchain(link_flags=("-Wl,-z,now",)),
    "sysroot": _toolchain(sysroot="/opt/sysroot"),
    "seed": lambda r: replace(r, seed=1),
    "what was measured to be best": lambda r: replace(
        r, choices=Choices({"product-0": ProductChoice(unrolled=8)})
    ),
    "preprocessing": lambda r: with_ends(r, {"image": Preprocess("NCHW")}),
}
OFFLOAD: dict[str, dict[str, object]] = {
    "no backend": {"backends": ()},
    "an option": {"options": {"ncnn": {"winograd": False}}},
    "force": {"force": ("nn.conv2d",)},
    "never": {"never": ("nn.softmax",)},
    "rates": {"rates": Rates(call_us=1.0)},
    "regions of one layer": {"one_layer_each": True},
    "a measurement": {
        "measured": {
            "r": Measured(
                "r", "rpi4", "ncnn", "1", 1.0, 2.0, True, "kitchen", "2026-01-01T00:00Z", "hardware"
            )
        }
    },
}
DOES_NOT: dict[str, Change] = {
    "backends that a board could have": lambda r: replace(
        r, board=replace(r.board, offload=replace(r.board.offload, default=("acl",)))
    ),
    "where the model lies": _source(path=Path("/elsewhere/net.onnx")),
    "board's title": _board(title="Another"),
    "board's file": _board(origin=Path("/elsewhere/rpi4.toml")),
    "board's memory": lambda r: replace(
        r, board=replace(r.board, memory=replace(r.board.memory, ram=1))
    ),
    "twin": _board(twin=None),
    "toolchain's title": _toolchain(title="Another"),
    "toolchain's file": _toolchain(origin=Path("/elsewhere/x.toml")),
    "minimum version": _toolchain(minimum_version="1"),
}


@pytest.mark.parametrize("change", DECIDES.values(), ids=DECIDES.keys())
def test_what_decides_the_bytes_changes_the_key(request_: BuildRequest, change: Change) -> None:
    assert build_key(change(request_), COMPILER) != build_key(request_, COMPILER)


@pytest.mark.parametrize("change", OFFLOAD.values(), ids=OFFLOAD.keys())
def test_what_is_offloaded_and_why_changes_the_key(
    request_: BuildRequest, change: dict[str, object]
) -> None:
    plan = OffloadPlan(("ncnn",))
    changed = replace(plan, **change)  # type: ignore[arg-type]
    assert build_key(replace(request_, offload=plan), COMPILER) != build_key(
        replace(request_, offload=changed), COMPILER
    )


@pytest.mark.parametrize("change", DOES_NOT.values(), ids=DOES_NOT.keys())
def test_what_does_not_decide_them_does_not(request_: BuildRequest, change: Change) -> None:
    assert build_key(change(request_), COMPILER) == build_key(request_, COMPILER)


@pytest.mark.parametrize("change", [{"version": "13.1"}, {"banner": "gcc (Ubuntu) 12.2.0"}])
def test_another_compiler_changes_the_key(request_: BuildRequest, change: dict[str, str]) -> None:
    other = replace(COMPILER, **change)  # type: ignore[arg-type]
    assert build_key(request_, other) != build_key(request_, COMPILER)


@pytest.mark.parametrize(
    ("package", "format_"),
    [
        *((package, "onnx") for package in ("apache-tvm", "apache-tvm-ffi", "numpy")),
        *(("onnx", "onnx"), ("onnxruntime", "onnx"), ("tflite", "tflite")),
        *(("ai-edge-litert", "tflite"), ("torch", "torch")),
    ],
)
def test_another_version_of_compiler_importer_or_oracle_changes_the_key(
    request_: BuildRequest, monkeypatch: pytest.MonkeyPatch, package: str, format_: ModelFormat
) -> None:
    request = replace(request_, source=replace(request_.source, format=format_))
    before = build_key(request, COMPILER)
    monkeypatch.setattr(
        "edgekit.building.key.version",
        lambda name: "999" if name == package else installed_version(name),
    )
    assert build_key(request, COMPILER) != before


def test_another_formats_importer_does_not_change_the_key(
    request_: BuildRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = build_key(request_, COMPILER)
    monkeypatch.setattr(
        "edgekit.building.key.version",
        lambda name: "999" if name == "torch" else installed_version(name),
    )
    assert build_key(request_, COMPILER) == before


def test_the_order_of_preprocessing_tables_does_not_matter(request_: BuildRequest) -> None:
    tables = {"a": Preprocess("NCHW"), "b": Preprocess("NHWC")}
    turned = dict(reversed(tables.items()))
    assert build_key(with_ends(request_, tables), COMPILER) == build_key(
        with_ends(request_, turned), COMPILER
    )


def test_the_digest_of_the_package_covers_its_sources_and_not_its_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import edgekit.building.key

    package = tmp_path / "edgekit"
    (package / "boards").mkdir(parents=True)
    (package / "__pycache__").mkdir()
    (package / "pipeline.py").write_text("passes = 1")
    monkeypatch.setattr(edgekit.building.key, "PACKAGE", package)

    def digest() -> str:
        package_digest.cache_clear()
        return package_digest()

    try:
        first = digest()
        (package / "boards/rpi4.toml").write_text("x")
        (package / "__pycache__/pipeline.pyc").write_text("x")
        assert digest() == first
        (package / "pipeline.py").write_text("passes = 2")
        second = digest()
        assert second != first
        (package / "pipeline.py").rename(package / "passes.py")
        assert digest() not in (first, second)
    finally:
        package_digest.cache_clear()
