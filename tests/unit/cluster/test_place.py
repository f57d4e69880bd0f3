"""Where a cluster is, as `--cluster` says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.base.errors import BadInputError, StorageError, UsageError
from edgekit.cluster.place import Host, Local, Remote, Running, parse_place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("tls://build1:8786", Running("tls://build1:8786")),
        ("build1:8786", Running("tls://build1:8786")),
        ("tls://[fe80::1]:1", Running("tls://[fe80::1]:1")),
        ("local:8", Local(8)),
    ],
)
def test_places(text: str, place: object) -> None:
    assert parse_place(text, Path()) == place


@pytest.mark.parametrize(
    "text",
    ["tcp://build1:8786", "local:0", "local:many", "build1", "ssh:", "", "tls://a:99999", "-x:1 2"],
)
def test_what_is_no_place_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="names no cluster"):
        parse_place(text, Path())


def test_hosts_are_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(
        "build1  # the old one\n\nme@build2 16\nbuild3 4 /opt/edgekit\n"
    )

    assert parse_place("ssh:hosts", tmp_path) == Remote(
        (Host("build1"), Host("me@build2", 16), Host("build3", 4, "/opt/edgekit"))
    )


@pytest.mark.parametrize("line", ["-oProxyCommand=x", "build1 many", "a 1 b c", "bu;ild"])
def test_a_line_that_is_no_host_is_told(tmp_path: Path, line: str) -> None:
    (tmp_path / "hosts").write_text(f"build1\n{line}\n")

    with pytest.raises(BadInputError, match=r"line 2 of .* names no host"):
        parse_place("ssh:hosts", tmp_path)


def test_a_file_without_hosts_is_told(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# none\n")

    with pytest.raises(BadInputError, match="names no host"):
        parse_place("ssh:hosts", tmp_path)
    with pytest.raises(StorageError):
        parse_place("ssh:missing", tmp_path)
