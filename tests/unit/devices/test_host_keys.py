"""Host keys are trusted by a person's word only, and a changed one stops everything."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from paramiko import ECDSAKey, PKey

from edgekit.base.errors import DeviceError, UsageError
from edgekit.devices.linux.hostkeys import KnownHosts, check_fingerprint, fingerprint_of


@pytest.fixture
def known(tmp_path: Path) -> KnownHosts:
    return KnownHosts(tmp_path / "edgekit" / "known_hosts", tmp_path / "users")


def new_key() -> PKey:
    return ECDSAKey.generate()


def test_the_fingerprint_is_the_one_that_openssh_prints(tmp_path: Path) -> None:
    key = new_key()
    (tmp_path / "key.pub").write_text(f"{key.get_name()} {key.get_base64()}\n")

    listed = subprocess.run(
        ["ssh-keygen", "-lf", str(tmp_path / "key.pub")], capture_output=True, text=True, check=True
    ).stdout

    assert fingerprint_of(key) == listed.split()[1]
    assert check_fingerprint(fingerprint_of(key)) == fingerprint_of(key)


@pytest.mark.parametrize("text", ["", "SHA256:", "MD5:aa:bb", "SHA256:short", "x" * 43 + "="])
def test_what_is_no_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not the fingerprint"):
        check_fingerprint(text)


def test_an_unknown_key_is_never_taken_silently(known: KnownHosts) -> None:
    key = new_key()

    with pytest.raises(DeviceError, match="is unknown") as caught:
        known.check("pi", key)

    assert fingerprint_of(key) in caught.value.message
    assert known.keys_of("pi") == ()


def test_a_yes_makes_a_key_known_and_a_no_does_not(known: KnownHosts) -> None:
    key = new_key()
    with pytest.raises(DeviceError, match="not accepted"):
        known.check("pi", key, ask=lambda met: False)
    assert known.keys_of("pi") == ()

    asked = []
    known.check("pi", key, ask=lambda met: not asked.append(met))
    known.check("pi", key)

    assert [met.fingerprint for met in asked] == [fingerprint_of(key)]


def test_a_fingerprint_takes_the_place_of_a_question(known: KnownHosts) -> None:
    key, other = new_key(), new_key()

    with pytest.raises(DeviceError, match="was expected") as caught:
        known.check("pi", key, fingerprint=fingerprint_of(other), ask=lambda met: True)
    assert fingerprint_of(key) in caught.value.message
    assert fingerprint_of(other) in caught.value.message
    assert known.keys_of("pi") == ()

    known.check("pi", key, fingerprint=fingerprint_of(key))
    assert known.keys_of("pi") == (key,)


def test_a_changed_key_stops_everything_with_both_fingerprints(known: KnownHosts) -> None:
    old, new = new_key(), new_key()
    known.check("[pi]:2222", old, ask=lambda met: True)

    for trust in ({}, {"ask": lambda met: True}, {"fingerprint": fingerprint_of(new)}):
        with pytest.raises(DeviceError, match="has changed") as caught:
            known.check("[pi]:2222", new, **trust)  # type: ignore[arg-type]
        assert fingerprint_of(old) in caught.value.message
        assert fingerprint_of(new) in caught.value.message
    assert known.keys_of("[pi]:2222") == (old,)


def test_the_users_own_list_is_honoured_and_never_written(tmp_path: Path) -> None:
    key, other = new_key(), new_key()
    users = tmp_path / "users"
    text = f"# mine\npi {key.get_name()} {key.get_base64()} me@desk\nbroken line\n"
    users.write_text(text)
    known = KnownHosts(tmp_path / "own", users)

    known.check("pi", key)
    with pytest.raises(DeviceError, match="has changed"):
        known.check("pi", other, ask=lambda met: True)
    known.check("other", other, ask=lambda met: True)

    assert users.read_text() == text


def test_hashed_names_are_found(tmp_path: Path) -> None:
    key = new_key()
    users = tmp_path / "users"
    users.write_text(f"pi {key.get_name()} {key.get_base64()}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(users)], check=True, capture_output=True)
    assert "pi" not in users.read_text().split()

    KnownHosts(tmp_path / "own", users).check("pi", key)


def test_a_revoked_key_is_refused_whatever_else_is_said(tmp_path: Path) -> None:
    key = new_key()
    users = tmp_path / "users"
    line = f"pi {key.get_name()} {key.get_base64()}\n"
    users.write_text(f"{line}@revoked {line}")

    with pytest.raises(DeviceError, match="is revoked"):
        KnownHosts(tmp_path / "own", users).check("pi", key, ask=lambda met: True)
