"""Objects with paths travel between hosts whose folders have other names."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgekit.base.errors import EdgekitError
from edgekit.base.paths import PACKAGE
from edgekit.cluster.carried import pack, unpack


@dataclass(frozen=True)
class _Compiled:
    library: Path
    options: tuple[str, ...]
    headers: Path


def test_paths_below_known_folders_are_those_of_the_reader() -> None:
    made = _Compiled(
        Path("/near/bottom/a/lib.so"),
        ("-I/x", "/near/bottom", "/near/bottoms"),
        PACKAGE / "agent",
    )
    data = pack(made, {"work": Path("/near/bottom")})

    assert unpack(data, {"work": Path("/far")}) == _Compiled(
        Path("/far/a/lib.so"), ("-I/x", "/far", "/near/bottoms"), PACKAGE / "agent"
    )


def test_no_path_leads_out_of_its_folder(tmp_path: Path) -> None:
    data = pack(Path("/near/bottom/../../etc"), {"work": Path("/near/bottom")})

    with pytest.raises((EdgekitError, pickle.UnpicklingError)):
        unpack(data, {"work": tmp_path})
