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
        Path("/here/work/a/lib.so"), ("-I/x", "/here/work", "/here/workshop"), PACKAGE / "agent"
    )
    data = pack(made, {"work": Path("/here/work")})

    assert unpack(data, {"work": Path("/there")}) == _Compiled(
        Path("/there/a/lib.so"), ("-I/x", "/there", "/here/workshop"), PACKAGE / "agent"
    )


def test_no_path_leads_out_of_its_folder(tmp_path: Path) -> None:
    data = pack(Path("/here/work/../../etc"), {"work": Path("/here/work")})

    with pytest.raises((EdgekitError, pickle.UnpicklingError)):
        unpack(data, {"work": tmp_path})
