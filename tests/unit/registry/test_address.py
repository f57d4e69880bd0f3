from __future__ import annotations

import pytest

from edgekit.base.errors import UsageError
from edgekit.registry.address import parse_address


@pytest.mark.parametrize(
    ("text", "host", "name", "tag", "here"),
    [
        ("oci://localhost/net:1", "localhost", "net", "1", True),
        ("oci://127.0.0.2:5000/a/b-c/d_e:v1.2", "127.0.0.2:5000", "a/b-c/d_e", "v1.2", True),
        ("oci://[::1]:5000/net:1", "[::1]:5000", "net", "1", True),
        ("oci://ghcr.io/me/net:stable", "ghcr.io", "me/net", "stable", False),
        ("oci://localhost.example/net:1", "localhost.example", "net", "1", False),
        ("oci://10.0.0.5:5000/net:1", "10.0.0.5:5000", "net", "1", False),
    ],
)
def test_an_address_is_read_and_written(
    text: str, host: str, name: str, tag: str, here: bool
) -> None:
    address = parse_address(text)

    assert (address.host, address.name, address.tag) == (host, name, tag)
    assert address.is_loopback is here
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "net",
        "https://ghcr.io/net:1",
        "oci://ghcr.io/net",
        "oci://ghcr.io/Net:1",
        "oci://ghcr.io/../net:1",
        "oci://ghcr.io:99999/net:1",
        "oci://ghcr.io/net:1\n",
        "oci://ghcr.io/net:1?x",
        "oci:///net:1",
        "oci://ghcr.io/" + "a" * 2000 + ":1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not the address of an artifact"):
        parse_address(text)


def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(UsageError) as refused:
        parse_address("oci://ann:secret@ghcr.io/net:1")

    assert "secret" not in str(refused.value.report())
