"""The hosts of a farm are remembered as they were given, and nothing else gets in."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.base.errors import ProjectError, UsageError
from edgekit.farm.hosts.file import (
    forget_host,
    known_hosts_of_farm,
    make_host,
    name_from,
    remember_host,
)


def test_what_is_remembered_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "farm.toml"
    attic = make_host("lab@10.0.0.21:2222", program='/opt/odd "name"/edgekit')
    cellar = make_host("cellar.lab.example", key=tmp_path / "key", proxy="me@gate")
    for host in (attic, cellar):
        remember_host(host, file=file)
    assert list(known_hosts_of_farm(file).values()) == [attic, cellar]
    assert (attic.name, cellar.name) == ("10-0-0-21", "cellar")
    assert attic.entry.port == 2222
    assert forget_host("cellar", file) == cellar
    assert list(known_hosts_of_farm(file)) == ["10-0-0-21"]


def test_another_host_of_that_name_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    file = tmp_path / "farm.toml"
    remember_host(make_host("lab@attic"), file=file)
    remember_host(make_host("lab@attic"), file=file)
    with pytest.raises(UsageError, match="joined already"):
        remember_host(make_host("other@attic"), file=file)
    remember_host(make_host("other@attic"), replace=True, file=file)
    assert known_hosts_of_farm(file)["attic"].address == "other@attic"
    with pytest.raises(UsageError, match="has joined the farm") as wrong:
        forget_host("atic", file)
    assert "attic" in (wrong.value.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        "schema = 2\n",
        "schema = 1\n[hosts.attic]\n",
        'schema = 1\n[hosts.attic]\naddress = "-oProxyCommand=x"\n',
        'schema = 1\n[hosts.attic]\naddress = "lab@attic"\ncolour = "red"\n',
        'schema = 1\n[hosts."../x"]\naddress = "lab@attic"\n',
        "schema = 1\n[hosts\n",
    ],
)
def test_what_makes_no_sense_is_refused_as_a_whole(tmp_path: Path, text: str) -> None:
    file = tmp_path / "farm.toml"
    file.write_text(text)
    with pytest.raises(ProjectError):
        known_hosts_of_farm(file)


def test_names_come_from_addresses() -> None:
    assert name_from("attic.lab.example") == "attic"
    assert name_from("10.0.0.21") == "10-0-0-21"
    assert name_from("fe80::1") == "fe80-1"
    assert name_from("Big_Box") == "big-box"
    with pytest.raises(UsageError):
        make_host("lab@attic", name="no name")
