"""What a board gets is chosen once, from its profile."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import tomli
from support.source import ROOT

from edgekit.backends.plan import OffloadPlan
from edgekit.base.errors import UsageError
from edgekit.building.key import build_key
from edgekit.building.product import OffloadWishes
from edgekit.building.products import product_of
from edgekit.building.request import BuildRequest
from edgekit.cross.toolchain import Compiler
from edgekit.models.model import ModelSource
from edgekit.profiles.board import load_board
from edgekit.profiles.offload import ProjectOffload
from edgekit.profiles.toolchain import load_toolchain

PROFILES = {
    path.stem: tomli.loads(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "boards").glob("*.toml"))
}
IN_C = [name for name, profile in PROFILES.items() if profile["kind"] == "baremetal"]
MODULES = [name for name, profile in PROFILES.items() if profile["kind"] == "webassembly"]
LIBRARIES = sorted(PROFILES.keys() - set(IN_C))
COMPILER = Compiler(Path("/usr/bin/cc"), (), "12.2.0", "cc (Debian) 12.2.0")


def request_for(name: str) -> BuildRequest:
    board = load_board(name)
    source = ModelSource(Path("/models/net.onnx"), "onnx", "a" * 64)
    return BuildRequest(source, board, load_toolchain(board.toolchain))


@pytest.mark.parametrize("name", PROFILES)
def test_the_target_of_a_profile_decides(name: str) -> None:
    profile, product = PROFILES[name], product_of(load_board(name))
    rest = profile.get("target", {}).get("rest", "cpu")

    other = "a WebAssembly module" if name in MODULES else "a library"
    assert product.in_words == ("a model in C" if name in IN_C else other)
    assert product.tuner == ("steps" if name in IN_C else "kernels")
    assert [need.name for need in product.needs] == ["CUDA packages"] * (rest == "cuda")
    assert product.tuning_pays == (name not in (*IN_C, *MODULES) and rest == "cpu")


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("option", [{"prefix": "net"}, {"code_format": "arduino"}, {}])
def test_options_of_c_are_refused_for_a_library(name: str, option: dict[str, str]) -> None:
    request = replace(request_for(name), **option)  # type: ignore[arg-type]

    gets = "a WebAssembly module" if name in MODULES else "a library"
    with pytest.raises(UsageError, match=f"{name} gets {gets}"):
        product_of(request.board).check(request, with_memory_map=not option)


@pytest.mark.parametrize("name", IN_C)
def test_they_are_taken_for_a_model_in_c(name: str) -> None:
    request = replace(request_for(name), prefix="net", code_format="arduino")

    product_of(request.board).check(request, with_memory_map=True)


@pytest.mark.parametrize("name", PROFILES)
def test_no_product_takes_backends_of_the_other(name: str) -> None:
    """cmsis-nn makes kernels in C, and the others run regions in machine code."""
    board = load_board(name)
    allowed = ("acl", "cmsis-nn", "ncnn", "onednn", "tensorrt")
    board = replace(board, offload=replace(board.offload, allowed=allowed, default=allowed))
    others = set(allowed) - {"cmsis-nn"} if name in IN_C else {"cmsis-nn"}

    for asked in others:
        with pytest.raises(UsageError):
            product_of(board).plan(board, OffloadWishes(ProjectOffload(), (asked,)))
    by_default = product_of(board).plan(board, OffloadWishes()).backends if name in IN_C else ()
    assert not set(by_default) & others


@pytest.mark.parametrize("name", PROFILES)
def test_a_job_passes_between_processes_as_it_is(name: str) -> None:
    request = replace(request_for(name), offload=OffloadPlan(("one",), {"one": {"a": 1}}))
    job = product_of(request.board).job(request, Path("scratch"), None)

    assert pickle.loads(pickle.dumps(job)) == job


@pytest.mark.parametrize("name", PROFILES)
def test_memory_decides_the_bytes_of_c_alone(name: str) -> None:
    request = request_for(name)
    memory = replace(request.board.memory, ram=request.board.memory.ram // 2)
    other = replace(request, board=replace(request.board, memory=memory))

    changed = build_key(other, COMPILER) != build_key(request, COMPILER)
    assert changed == (name in IN_C)
