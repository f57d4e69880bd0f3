"""Files reach a device whole or not at all, and never twice."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.building import READ_ONLY, tmpfs
from support.needs import needs
from support.ssh_server import SshServer, ssh_server

from edgekit.base.errors import DeviceError
from edgekit.base.events import Event, Events, StageProgress
from edgekit.base.files import sha256_file
from edgekit.devices.base import DeviceBusy
from edgekit.devices.linux import transfer
from edgekit.devices.linux.connection import Connection
from edgekit.devices.linux.lease import lease
from edgekit.devices.linux.probe import ask_device
from edgekit.devices.linux.transfer import Item, Sent, Store

pytestmark = needs("sshd")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with ssh_server(tmp_path / "ssh") as running:
        yield running


@pytest.fixture
def connection(server: SshServer) -> Iterator[Connection]:
    with server.connect() as opened:
        yield opened


def store_on(server: SshServer, connection: Connection) -> Store:
    return Store(connection, ask_device(connection, server.directory))


def item(folder: Path, size: int, name: str = "model.so", **more: bool) -> Item:
    source = folder / f"{name}-{size}"
    if not source.exists():
        source.write_bytes(os.urandom(size))
    return Item(source, name, sha256_file(source), size, **more)


def objects(server: SshServer) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in (server.root / "objects").iterdir()}


class DroppingAfter(Events):
    """Cuts every connection once so many bytes are under way."""

    def __init__(self, server: SshServer, size: int) -> None:
        super().__init__(self._listen)
        self._server, self._size, self.dropped = server, size, False

    def _listen(self, event: Event) -> None:
        if isinstance(event, StageProgress) and event.done >= self._size and not self.dropped:
            self.dropped = True
            self._server.drop_connections()


def test_files_arrive_with_their_modes_and_are_not_sent_again(
    server: SshServer, connection: Connection, tmp_path: Path
) -> None:
    store = store_on(server, connection)
    files = [item(tmp_path, 3_000_000), item(tmp_path, 5000, "tool", executable=True),
             item(tmp_path, 0, "empty")]  # fmt: skip

    first = store.push(files, "models/one")
    again = store.push(files, "models/two")

    assert (first.bytes_sent, first.bytes_present) == (3_005_000, 0)
    assert (again.bytes_sent, again.bytes_present) == (0, 3_005_000)
    for folder in ("one", "two"):
        for file in files:
            there = server.root / "models" / folder / file.name
            assert there.read_bytes() == file.source.read_bytes()
            assert there.stat().st_mode & 0o777 == (0o700 if file.executable else 0o600)


def test_a_folder_is_replaced_by_a_push_of_other_files(
    server: SshServer, connection: Connection, tmp_path: Path
) -> None:
    store = store_on(server, connection)
    store.push([item(tmp_path, 10, "a"), item(tmp_path, 20, "b")], "models/x")

    store.push([item(tmp_path, 30, "c")], "models/x")

    assert [file.name for file in (server.root / "models/x").iterdir()] == ["c"]
    assert [file.name for file in (server.root / "models").iterdir()] == ["x"]


def test_a_dropped_transfer_goes_on_where_it_was(
    server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_SECONDS_BETWEEN_REPORTS", 0.0)  # or it may be all there by then
    big = item(tmp_path, 40_000_000)
    with server.connect() as first:
        dropping = DroppingAfter(server, 15_000_000)
        with pytest.raises(DeviceError, match="connection to desk was lost") as caught:
            store_on(server, first).push([big], "models/x", events=dropping)
    assert "the device keeps what was sent" in str(caught.value.hint)
    kept = objects(server)[f"{big.sha256}.part"]
    assert kept > 5_000_000

    with server.connect() as second:
        sent = store_on(server, second).push([big], "models/x")

    assert sent.bytes_sent <= big.size - kept
    assert (server.root / "models/x/model.so").read_bytes() == big.source.read_bytes()
    assert objects(server) == {big.sha256: big.size}


def test_a_part_that_is_damaged_is_sent_again_from_the_start(
    server: SshServer, connection: Connection, tmp_path: Path
) -> None:
    store, file = store_on(server, connection), item(tmp_path, 2_000_000)
    (server.root / "objects" / f"{file.sha256}.part").write_bytes(b"x" * 1_000_000)

    store.push([file], "models/x")

    assert (server.root / "models/x/model.so").read_bytes() == file.source.read_bytes()


def test_a_part_that_is_too_long_is_sent_again(
    server: SshServer, connection: Connection, tmp_path: Path
) -> None:
    store, file = store_on(server, connection), item(tmp_path, 1000)
    (server.root / "objects" / f"{file.sha256}.part").write_bytes(b"x" * 5000)

    assert store.push([file], "models/x").bytes_sent == 1000


def test_an_object_of_the_wrong_size_is_not_believed(
    server: SshServer, connection: Connection, tmp_path: Path
) -> None:
    store, file = store_on(server, connection), item(tmp_path, 1000)
    (server.root / "objects" / file.sha256).write_bytes(b"")  # as a power cut may leave it

    store.push([file], "models/x")

    assert (server.root / "models/x/model.so").read_bytes() == file.source.read_bytes()


def test_a_version_whose_files_came_out_empty_is_made_whole(
    server: SshServer, connection: Connection, tmp_path: Path
) -> None:
    """As after power was lost on a file system that writes names first."""
    store, files = store_on(server, connection), [item(tmp_path, 9, "a"), item(tmp_path, 20, "b")]
    store.push(files, "models/x")
    for file in files:
        (server.root / "objects" / file.sha256).write_bytes(b"")  # the folder's file as well
    assert (server.root / "models/x/a").stat().st_size == 0

    sent = store.push(files, "models/x")

    assert sent.bytes_sent == 29
    for file in files:
        assert (server.root / "models/x" / file.name).read_bytes() == file.source.read_bytes()
        assert objects(server)[file.sha256] == file.size


def test_a_file_that_changes_while_it_is_sent_never_gets_its_name(
    server: SshServer, connection: Connection, tmp_path: Path
) -> None:
    store, file = store_on(server, connection), item(tmp_path, 1000)
    file.source.write_bytes(os.urandom(1000))

    with pytest.raises(DeviceError, match="was changed while it was sent"):
        store.push([file], "models/x")

    assert file.sha256 not in objects(server)


def test_a_file_that_changed_after_all_of_it_was_sent_never_gets_its_name(
    server: SshServer, connection: Connection, tmp_path: Path
) -> None:
    store, file = store_on(server, connection), item(tmp_path, 1000)
    changed = os.urandom(1000)
    file.source.write_bytes(changed)
    (server.root / "objects" / f"{file.sha256}.part").write_bytes(changed)

    with pytest.raises(DeviceError, match="was changed while it was sent"):
        store.push([file], "models/x")

    assert file.sha256 not in objects(server)


def test_many_files_of_all_sizes_arrive_in_one_command(
    server: SshServer, connection: Connection, tmp_path: Path
) -> None:
    sizes = [0, 1, 4095, 4096, 4097, 70_000, 1_000_000]
    files = [item(tmp_path, size, f"file-{size}") for size in sizes]
    half = files[-2]
    (server.root / "objects").mkdir(parents=True, exist_ok=True)
    store = store_on(server, connection)
    part = server.root / "objects" / f"{half.sha256}.part"
    part.write_bytes(half.source.read_bytes()[:30_000])

    sent = store.push(files, "models/x")

    assert sent.bytes_sent == sum(sizes) - 30_000
    for file in files:
        assert (server.root / "models/x" / file.name).read_bytes() == file.source.read_bytes()


def test_two_pushes_of_one_file_at_once_are_safe(server: SshServer, tmp_path: Path) -> None:
    file = item(tmp_path, 20_000_000)
    sent: list[Sent] = []

    def push() -> None:
        with server.connect() as own:
            sent.append(store_on(server, own).push([file], "models/x"))

    server.connect().close()
    threads = [threading.Thread(target=push) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(one.bytes_sent for one in sent) == [0, 0, file.size]
    assert (server.root / "models/x/model.so").read_bytes() == file.source.read_bytes()
    assert objects(server) == {file.sha256: file.size}


def test_progress_says_how_far_and_how_fast(
    server: SshServer, connection: Connection, tmp_path: Path
) -> None:
    seen: list[StageProgress] = []
    file = item(tmp_path, 3_000_000)

    def listen(event: Event) -> None:
        if isinstance(event, StageProgress):
            seen.append(event)

    store_on(server, connection).push([file], "models/x", events=Events(listen))

    assert seen[-1].total == file.size
    assert seen[-1].done <= file.size
    assert seen[-1].detail.endswith("iB/s")


@needs("mounts", "root")
def test_what_does_not_fit_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with ssh_server(tmp_path / "ssh", mount=tmpfs("size=8m")) as server, server.connect() as own:
        with pytest.raises(
            DeviceError, match=r"desk has [\d.,]+ [KMG]iB free .* 13\.\d MiB are needed"
        ):
            store_on(server, own).push([item(tmp_path, 10_000_000)], "models/x")

        store_on(server, own).push([item(tmp_path, 1_000_000)], "models/y")


@needs("mounts", "root")
def test_a_disk_that_fills_up_meanwhile_is_told_and_the_device_stays_usable(
    tmp_path: Path,
) -> None:
    with ssh_server(tmp_path / "ssh", mount=tmpfs("size=24m")) as server, server.connect() as own:
        store = store_on(server, own)
        own.run(("dd", "if=/dev/zero", f"of={server.directory}/other", "bs=1M", "count=20"))

        with pytest.raises(DeviceError, match="disk of desk is full") as caught:
            store.push([item(tmp_path, 10_000_000)], "models/x")

        assert "edgekit device clean" in str(caught.value.hint)
        own.run(("rm", f"{server.directory}/other"))
        store.push([item(tmp_path, 10_000_000)], "models/x")


@needs("mounts", "root")
@pytest.mark.parametrize(
    ("mount", "says"),
    [
        (READ_ONLY, "read-only file system"),
        (tmpfs("size=1m,noexec"), "nothing may be run from"),
        (tmpfs("size=16k,nr_inodes=3"), "no space left on device"),
    ],
)
def test_a_place_that_is_none_is_told_before_anything_is_sent(
    tmp_path: Path, mount: str, says: str
) -> None:
    with (
        ssh_server(tmp_path / "ssh", mount=mount) as server,
        server.connect() as own,
        pytest.raises(DeviceError, match=f"no place for edgekit's files: .*{says}") as caught,
    ):
        store_on(server, own).push([item(tmp_path, 10)], "models/x")

    assert "directory" in str(caught.value.hint)


def test_one_at_a_time_has_the_device(server: SshServer, connection: Connection) -> None:
    root = ask_device(connection).root
    with server.connect() as other:
        with lease(connection, root, wait=None, user="ann on desk") as mine:
            assert Path(mine.scratch).is_dir()
            with (
                pytest.raises(DeviceBusy, match="desk is in use by ann on desk"),
                lease(other, root, wait=None),
            ):
                pass
        with lease(other, root, wait=240) as theirs:
            assert theirs.scratch != mine.scratch
            assert not Path(mine.scratch).exists()


def test_a_lost_connection_gives_the_device_back(server: SshServer) -> None:
    with server.connect() as lost:
        root = ask_device(lost).root
        with lease(lost, root, wait=None) as gone:
            server.drop_connections()
            with server.connect() as next_one, lease(next_one, root, wait=240):
                assert not Path(gone.scratch).exists()
