"""Where Debian's packages come from, and what apt says it would fetch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import BuildError
from edgekit.twin.debian import Package, Source, host_sources, parse_uris, patiently

MIRROR = "http://mirror.example/debian/"
SECURITY = "http://mirror.example/debian-security/"


def test_the_hosts_own_mirrors_are_used() -> None:
    targets = (
        f"bookworm|main|{MIRROR}\n"
        f"bookworm-updates|main|{MIRROR}\n"
        "bookworm-security|main|http://mirror.example/debian-security/\n"
    )
    assert host_sources(targets, "bookworm") == (
        Source(MIRROR, "bookworm"),
        Source(MIRROR, "bookworm-updates"),
        Source("http://mirror.example/debian-security/", "bookworm-security"),
    )


def test_other_peoples_repositories_are_left_alone() -> None:
    targets = (
        f"bookworm|main|{MIRROR}\n"
        "bookworm|stable|https://download.docker.example/linux/debian\n"
        "nodistro|main|https://node.example/node_20.x/\n"
        "bookworm|main|https://packages.example/php/\n"
        f"bookworm|contrib|{MIRROR}\n"
    )
    assert host_sources(targets, "bookworm") == (Source(MIRROR, "bookworm"),)


def test_a_host_that_is_not_debian_gets_debians_own_servers() -> None:
    targets = (
        "noble|main|http://mirror.example/ubuntu\nnoble-updates|main|http://m.example/ubuntu\n"
    )
    sources = host_sources(targets, "trixie")
    assert [source.suite for source in sources] == ["trixie", "trixie-updates", "trixie-security"]
    assert all(".debian.org/debian" in source.uri for source in sources)
    assert sources[2].uri.endswith("-security")


def test_a_host_of_another_release_gets_it_from_its_own_mirrors() -> None:
    targets = (
        f"bookworm|main|{MIRROR}\nbookworm-updates|main|{MIRROR}\n"
        f"bookworm-security|main|{SECURITY}\n"
    )
    assert host_sources(targets, "trixie") == (
        Source(MIRROR, "trixie"),
        Source(MIRROR, "trixie-updates"),
        Source(SECURITY, "trixie-security"),
    )


@given(st.text())
def test_whatever_apt_says_there_are_always_sources_of_the_release(text: str) -> None:
    assert any(source.suite == "bookworm" for source in host_sources(text, "bookworm"))


def test_packages_are_read_from_what_apt_prints() -> None:
    output = (
        "Reading package lists...\n"
        "'http://m/pool/dash_0.5_arm64.deb' dash_0.5_arm64.deb 97416 SHA256:00ff\n"
        "'http://m/pool/libc6_2.36-9%2bdeb12u14_arm64.deb' libc6_2.36-9+deb12u14_arm64.deb 23 \n"
        "'http://m/dists/InRelease' m_dists_InRelease 0\n"
    )
    assert parse_uris(output) == (
        Package("dash", "dash_0.5_arm64.deb", 97416),
        Package("libc6", "libc6_2.36-9+deb12u14_arm64.deb", 23),
    )


@given(st.text())
def test_anything_else_that_apt_prints_is_no_package(text: str) -> None:
    for package in parse_uris(text):
        assert package.file.endswith(".deb")


SYNCHRONISING = (
    "$ apt-get -q update",
    "E: Failed to fetch http://mirror.example/debian/dists/Packages.xz",
    "   File has unexpected size (100 != 200). Mirror sync in progress? [IP: 192.0.2.1 80]",
)


class Mirror:
    """A mirror that fails a number of times."""

    def __init__(self, failures: int, *details: str) -> None:
        self.failures, self.details, self.fetches = failures, details, 0

    def fetch(self) -> None:
        self.fetches += 1
        if self.fetches <= self.failures:
            raise BuildError(
                "apt-get ended with status 100", hint="see the log", details=self.details
            )


def test_a_mirror_that_is_being_synchronised_is_asked_again() -> None:
    mirror = Mirror(2, *SYNCHRONISING)

    patiently(mirror.fetch, pauses_s=(0, 0, 0))

    assert mirror.fetches == 3


def test_a_mirror_that_stays_so_is_told_with_what_to_do() -> None:
    mirror = Mirror(9, *SYNCHRONISING)

    with pytest.raises(BuildError) as caught:
        patiently(mirror.fetch, pauses_s=(0, 0, 0))

    assert mirror.fetches == 4
    assert "being synchronised" in caught.value.hint
    assert caught.value.details == SYNCHRONISING


def test_any_other_failure_of_a_mirror_is_told_at_once() -> None:
    mirror = Mirror(9, *SYNCHRONISING, "$ apt-get -q update", "E: Could not resolve mirror.example")

    with pytest.raises(BuildError, match="status 100"):
        patiently(mirror.fetch, pauses_s=(0, 0, 0))

    assert mirror.fetches == 1
