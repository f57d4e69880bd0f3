from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgekit.base.errors import BadInputError, StorageError, UsageError
from edgekit.registry.keys import list_keys, new_key, public_key, signing_key


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "edgekit" / "keys"


def test_a_key_signs_and_its_public_half_verifies(tmp_path: Path) -> None:
    made = new_key("mine")
    signature = signing_key(None).sign(b"words")
    copied = Path(shutil.copy(made.file, tmp_path / "copy.pub"))

    for key in (public_key(None, tmp_path), public_key("copy.pub", tmp_path)):
        assert key.id == made.id
        assert key.verifies(signature, b"words")
        assert not key.verifies(signature, b"other words")
        assert not key.verifies(b"short", b"words")
    assert copied.read_text().startswith("-----BEGIN PUBLIC KEY-----")


def test_the_private_half_is_the_users_alone(folder: Path) -> None:
    new_key("mine")
    private = folder / "mine.key"

    assert private.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    private.chmod(0o640)
    with pytest.raises(BadInputError, match="other users may read"):
        signing_key("mine")


def test_a_key_is_never_written_over(folder: Path) -> None:
    new_key("mine")
    before = (folder / "mine.key").read_bytes()
    with pytest.raises(UsageError, match="a key mine already"):
        new_key("mine")
    (folder / "mine.pub").unlink()
    with pytest.raises(UsageError, match="a key mine already"):
        new_key("mine")
    assert (folder / "mine.key").read_bytes() == before


def test_keys_are_listed_by_name(folder: Path) -> None:
    assert list_keys() == ()
    new_key("zoe")
    new_key("ann")
    (folder / "zoe.key").unlink()

    assert [(key.name, key.signs) for key in list_keys()] == [("ann", True), ("zoe", False)]
    assert signing_key(None).public.name == "ann"
    with pytest.raises(UsageError, match="several keys"):
        public_key(None, folder)
    with pytest.raises(UsageError, match="no key 'zoe' that edgekit signs with"):
        signing_key("zoe")


@pytest.mark.parametrize("name", ["", "../mine", "a b", ".hidden", "x" * 65])
def test_names_stay_in_the_folder(name: str, folder: Path) -> None:
    with pytest.raises(UsageError, match="not the name of a key"):
        new_key(name)
    assert not folder.exists()


def test_other_files_are_no_keys(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "none.pub").write_text("words")
    with pytest.raises(BadInputError, match="not a public key in PEM"):
        public_key("none.pub", tmp_path)
    with pytest.raises(StorageError):
        public_key("missing.pub", tmp_path)
    new_key("mine")
    (folder / "mine.key").write_text("words")
    with pytest.raises(BadInputError, match="not a private key"):
        signing_key("mine")


def test_the_id_is_of_the_key_itself(tmp_path: Path) -> None:
    ids = {new_key(name).id for name in ("one", "two")}

    assert len(ids) == 2
    assert all(len(one) == 16 and not set(one) - set("0123456789abcdef") for one in ids)
