"""Bundles through a real registry: what is sent, what is verified, what is refused."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.needs import needs
from support.registry import RegistryServer

import edgekit
from edgekit.base.errors import RegistryError, SignatureError, StorageError, UsageError
from edgekit.bundle.folder import Bundle, describe_file, open_bundle, write_manifest
from edgekit.bundle.manifest import manifest_text
from edgekit.registry.keys import new_key, signing_key
from edgekit.registry.parts import parts_of
from edgekit.registry.statement import Statement, write_document

pytestmark = needs("docker-registry")


def changed(bundle: Bundle, folder: Path, content: bytes) -> Bundle:
    """The same bundle with another library."""
    shutil.copytree(bundle.path, folder)
    (folder / "model.so").write_bytes(b"\x7fELF" + content)
    files = tuple(describe_file(folder, file.path, file.role) for file in bundle.manifest.files)
    write_manifest(folder, replace(bundle.manifest, files=files))
    return open_bundle(folder)


def forget_what_was_seen(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "data" / "edgekit" / "registry")


def test_what_is_published_is_fetched_byte_by_byte(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    published = workspace.publish(bundle, registry.address())
    forget_what_was_seen(tmp_path)  # another machine
    fetched = workspace.fetch(registry.address(), "fetched", key="mine", board="local")

    assert published.is_new
    assert published.sent == published.total == fetched.total == fetched.received
    assert published.counter == fetched.counter == 1
    assert published.digest == fetched.digest
    assert (fetched.model, fetched.board, fetched.key) == ("tiny", "local", "mine")
    assert open_bundle(tmp_path / "fetched").digest == bundle.digest
    assert sorted(path.relative_to(tmp_path / "fetched") for path in files(fetched.path)) == sorted(
        path.relative_to(bundle.path) for path in files(bundle.path)
    )
    assert all(
        path.read_bytes() == (bundle.path / path.relative_to(fetched.path)).read_bytes()
        for path in files(fetched.path)
    )


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_the_registry_has_is_not_sent_again(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    workspace.publish(bundle, registry.address())
    before = registry.writes()
    again = workspace.publish(bundle, registry.address())

    assert before
    assert registry.writes() == before
    assert (again.is_new, again.sent, again.counter) == (False, 0, 1)

    newer = changed(bundle, tmp_path / "newer", b"another")
    third = workspace.publish(newer, registry.address())

    library = next(file for file in newer.manifest.files if file.path == "model.so")
    manifest = (newer.path / "manifest.json").stat().st_size
    assert (third.is_new, third.sent, third.counter) == (True, library.size + manifest, 2)


def test_another_tag_of_the_same_bundle_sends_its_document_alone(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle
) -> None:
    workspace.publish(bundle, registry.address("net:1"))

    assert workspace.publish(bundle, registry.address("net:stable")).sent == 0
    assert workspace.fetch(registry.address("net:stable"), "fetched").counter == 1


def test_files_that_a_folder_holds_are_not_fetched(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    workspace.publish(bundle, registry.address())
    workspace.fetch(registry.address(), "fetched")
    newer = changed(bundle, tmp_path / "newer", b"another")
    workspace.publish(newer, registry.address())

    fetched = workspace.fetch(registry.address(), "fetched")

    library = next(file for file in newer.manifest.files if file.path == "model.so")
    manifest = (newer.path / "manifest.json").stat().st_size
    assert fetched.received == library.size + manifest
    assert open_bundle(fetched.path).digest == newer.digest


def test_a_blob_of_several_parts_arrives(
    registry: RegistryServer,
    workspace: edgekit.Workspace,
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("edgekit.registry.repository._CHUNK", 1000)
    workspace.publish(bundle, registry.address())

    assert len([line for line in registry.writes() if '"PATCH /' in line]) > 10
    workspace.fetch(registry.address(), "fetched")
    assert open_bundle(tmp_path / "fetched").digest == bundle.digest


def test_an_upload_goes_on_after_the_registry_was_killed(
    registry: RegistryServer,
    workspace: edgekit.Workspace,
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    big = changed(bundle, tmp_path / "big", os.urandom(300_000))
    monkeypatch.setattr("edgekit.registry.repository._CHUNK", 50_000)
    sent: list[int] = []

    def kill_once(event: edgekit.Event) -> None:
        detail, done = getattr(event, "detail", ""), getattr(event, "done", 0)
        if detail == "model.so":
            sent.append(done)
            if len(sent) == 3:
                registry.stop()
                registry.start()

    heard = edgekit.Workspace(tmp_path, events=kill_once)
    heard.publish(big, registry.address())

    assert sent == sorted(sent), "what was sent before the kill is not sent again"
    workspace.fetch(registry.address(), "fetched")
    assert open_bundle(tmp_path / "fetched").digest == big.digest


def test_a_registry_that_is_down_is_one_sentence(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    registry.stop()

    with pytest.raises(RegistryError, match="could not reach the registry"):
        workspace.publish(bundle, registry.address())
    with pytest.raises(RegistryError, match="Connection refused"):
        workspace.fetch(registry.address(), "fetched")
    assert not (tmp_path / "fetched").exists()


def test_a_tag_that_is_not_there_is_named(
    registry: RegistryServer, workspace: edgekit.Workspace
) -> None:
    with pytest.raises(RegistryError, match=r"has no net:nothing"):
        workspace.fetch(registry.address("net:nothing"), "fetched")


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"x" * 50_000], ids=["empty", "cut", "long"])
@pytest.mark.parametrize("which", ["model.so", "manifest.json"])
def test_damaged_blobs_leave_what_was_there_before(
    registry: RegistryServer,
    workspace: edgekit.Workspace,
    bundle: Bundle,
    tmp_path: Path,
    content: bytes,
    which: str,
) -> None:
    workspace.publish(bundle, registry.address())
    workspace.fetch(registry.address(), "fetched")
    newer = changed(bundle, tmp_path / "newer", b"another")
    published = workspace.publish(newer, registry.address())
    (library,) = (file for file in newer.manifest.files if file.path == "model.so")
    registry.blob(library.sha256 if which == "model.so" else published.digest).write_bytes(content)
    # The registry remembers sizes as long as it runs.
    registry.stop()
    registry.start()

    with pytest.raises(SignatureError, match="other content"):
        workspace.fetch(registry.address(), "fetched")

    assert open_bundle(tmp_path / "fetched").digest == bundle.digest
    assert [path.name for path in tmp_path.glob("*fetched*")] == ["fetched"]
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_swapped_blob_of_the_same_size_is_noticed(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    workspace.publish(bundle, registry.address())
    (library,) = (file for file in bundle.manifest.files if file.path == "model.so")
    blob = registry.blob(library.sha256)
    blob.write_bytes(blob.read_bytes()[::-1])

    with pytest.raises(SignatureError, match="other content"):
        workspace.fetch(registry.address(), "fetched")
    assert not (tmp_path / "fetched").exists()


def test_another_key_is_refused(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    other = new_key("other")
    workspace.publish(bundle, registry.address(), key="mine")

    with pytest.raises(SignatureError, match=f"not signed by the key other .{other.id}"):
        workspace.fetch(registry.address(), "fetched", key=str(other.file))
    assert not (tmp_path / "fetched").exists()
    with pytest.raises(UsageError, match="several keys"):
        workspace.fetch(registry.address(), "fetched")


def test_an_older_publication_is_refused_where_a_newer_one_was_seen(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    workspace.publish(bundle, registry.address())
    old = registry.document()
    newer = changed(bundle, tmp_path / "newer", b"another")
    workspace.publish(newer, registry.address())
    forget_what_was_seen(tmp_path)
    workspace.fetch(registry.address(), "fetched")
    registry.put_document(old)

    with pytest.raises(SignatureError, match="holds publication 1, and 2 was seen"):
        workspace.fetch(registry.address(), "fetched")
    assert open_bundle(tmp_path / "fetched").digest == newer.digest

    # Who has the key goes back by publishing the old bundle again.
    assert workspace.publish(bundle, registry.address()).counter == 3
    workspace.fetch(registry.address(), "fetched")
    assert open_bundle(tmp_path / "fetched").digest == bundle.digest


def test_a_tag_that_was_moved_to_another_tags_bundle_is_refused(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    workspace.publish(bundle, registry.address("net:stable"))
    newer = changed(bundle, tmp_path / "newer", b"untested")
    workspace.publish(newer, registry.address("net:canary"))
    registry.put_document(registry.document("net:canary"), "net:stable")

    with pytest.raises(SignatureError, match="holds what was signed as 'net':'canary'"):
        workspace.fetch(registry.address("net:stable"), "fetched")


def test_two_publications_of_one_number_are_refused(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    workspace.publish(bundle, registry.address())
    workspace.fetch(registry.address(), "fetched")
    registry.stop()
    forgotten = registry.folder / "data"
    shutil.rmtree(forgotten)
    registry.start()
    data = tmp_path / "data"
    data.rename(tmp_path / "aside")
    workspace.publish(changed(bundle, tmp_path / "rival", b"rival"), registry.address())
    shutil.rmtree(data)
    (tmp_path / "aside").rename(data)

    with pytest.raises(SignatureError, match="another publication 1"):
        workspace.fetch(registry.address(), "fetched")


def test_a_changed_or_missing_statement_is_refused(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle
) -> None:
    workspace.publish(bundle, registry.address())
    document = json.loads(registry.document())
    notes = document["annotations"]
    signed = notes["dev.edgekit.statement"]

    notes["dev.edgekit.statement"] = signed.replace('"counter": 1', '"counter": 9')
    assert notes["dev.edgekit.statement"] != signed
    registry.put_document(json.dumps(document).encode())
    with pytest.raises(SignatureError, match="not signed by the key"):
        workspace.fetch(registry.address(), "fetched")

    document["annotations"] = {}
    registry.put_document(json.dumps(document).encode())
    with pytest.raises(SignatureError, match="is not signed"):
        workspace.fetch(registry.address(), "fetched")

    document["annotations"] = {**notes, "dev.edgekit.statement": signed}
    (library,) = (file for file in bundle.manifest.files if file.path == "model.so")
    document["config"] |= {"digest": f"sha256:{library.sha256}", "size": library.size}
    registry.put_document(json.dumps(document).encode())
    with pytest.raises(SignatureError, match="another manifest than the signed one"):
        workspace.fetch(registry.address(), "fetched")


def test_another_board_is_refused(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    workspace.publish(bundle, registry.address())

    with pytest.raises(SignatureError, match="for the board 'local', not for rpi4"):
        workspace.fetch(registry.address(), "fetched", board="rpi4")
    assert not (tmp_path / "fetched").exists()


def test_a_folder_that_is_no_bundle_is_not_written_over(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    workspace.publish(bundle, registry.address())
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")

    with pytest.raises(UsageError, match="would be written over"):
        workspace.fetch(registry.address(), "photos")
    assert (tmp_path / "photos" / "cat.jpg").read_bytes() == b"cat"


def test_a_statement_about_another_board_than_the_bundles_is_refused(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    published = workspace.publish(bundle, registry.address())
    statement = Statement("bundle", "net", "1", published.digest, "rpi4", 2)
    size = (bundle.path / "manifest.json").stat().st_size
    registry.put_document(write_document(statement, parts_of(bundle), size, signing_key("mine")))

    with pytest.raises(SignatureError, match="signed for the board 'rpi4' and was built for"):
        workspace.fetch(registry.address(), "fetched", board="rpi4")
    assert not (tmp_path / "fetched").exists()


def test_a_bundle_larger_than_the_disk_is_refused_before_it_is_fetched(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    workspace.publish(bundle, registry.address())
    library, *others = bundle.manifest.files
    huge = replace(bundle.manifest, files=(replace(library, size=1 << 52), *others))
    (bundle.path / "manifest.json").write_text(manifest_text(huge))

    workspace.publish(Bundle(bundle.path, huge, bundle.digest), registry.address())

    with pytest.raises(StorageError, match="has no room for them"):
        workspace.fetch(registry.address(), "fetched")
    assert not (tmp_path / "fetched").exists()


def test_an_interrupted_fetch_leaves_nothing(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    workspace.publish(bundle, registry.address())
    before = sorted(path.name for path in tmp_path.iterdir())

    def interrupt(event: edgekit.Event) -> None:
        if getattr(event, "detail", "") == "model.so":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        edgekit.Workspace(tmp_path, events=interrupt).fetch(registry.address(), "new/fetched")

    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert workspace.fetch(registry.address(), "new/fetched").counter == 1
