"""Versions of a model side by side on a device: the agent and a shell behind a real SSH server."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pytest
from support.needs import needs
from support.ssh_server import SshServer, ssh_server

from edgekit.agent.build import AGENT, Agent, build_agent
from edgekit.base.errors import DeviceError, UsageError
from edgekit.devices.base import Recorded
from edgekit.devices.linux.connection import Connection
from edgekit.devices.linux.device_log import (
    LARGEST_LOG,
    LOG,
    OLDER_LOG,
    LogEntry,
    clean,
    log_line,
    now,
    read_log,
)
from edgekit.devices.linux.lease_client import LeaseClient
from edgekit.devices.linux.version_records import (
    ModelFile,
    ModelInput,
    Version,
    VersionRecord,
    choose_version,
)
from edgekit.devices.linux.versions import damaged_files, read_versions
from edgekit.profiles.toolchain import load_toolchain

pytestmark = needs("sshd")

BODY = b"a library"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        yield running


@pytest.fixture
def connection(server: SshServer) -> Iterator[Connection]:
    shutil.rmtree(server.root, ignore_errors=True)
    server.root.mkdir(parents=True)
    (server.root / "objects").mkdir()
    with server.connect() as opened:
        yield opened


def record(letter: str, model: str = "net") -> VersionRecord:
    return VersionRecord(
        model=clean(model),
        digest=letter * 64,
        board="rpi4",
        files=(ModelFile("model.so", hashlib.sha256(BODY + letter.encode()).hexdigest()),),
        verified=True,
        median=0.0125,
        inputs=(ModelInput("float32", (1, 3, 8, 8)),),
    )


def put(server: SshServer, letter: str) -> None:
    folder = server.root / "models" / (letter * 64)
    folder.mkdir(parents=True, exist_ok=True)
    body = BODY + letter.encode()
    stored = server.root / "objects" / hashlib.sha256(body).hexdigest()
    stored.write_bytes(body)
    if not (folder / "model.so").exists():
        os.link(stored, folder / "model.so")


def deploy(
    server: SshServer, connection: Connection, letter: str, *, keep: int = 3, model: str = "net"
) -> Recorded:
    put(server, letter)
    line = log_line("deployed", model=model, digest=letter * 64)
    with agent(server, connection) as client:
        return client.record(record(letter, model), keep, line)


@contextmanager
def agent(server: SshServer, connection: Connection) -> Iterator[LeaseClient]:
    (program,) = (file.path for file in built().files if file.path.name == AGENT)
    (server.root / "runs").mkdir(exist_ok=True)
    words = ("sh", "-c", 'exec "$1" attend "$2"', "edgekit", str(program), str(server.root))
    with connection.command(words, listens=True) as command:
        client = LeaseClient(command, connection.name)
        assert client.is_running()
        yield client


@cache
def built() -> Agent:
    return build_agent(load_toolchain("host"), os.uname().machine)


def versions(connection: Connection, model: str = "net") -> list[Version]:
    return [v for v in read_versions(connection, None) if v.record.model == model]


def letters(connection: Connection, model: str = "net") -> str:
    """Newest first, the current one in capitals."""
    return "".join(
        v.record.digest[0].upper() if v.current else v.record.digest[0]
        for v in versions(connection, model)
    )


def test_a_deployed_version_is_the_current_one_and_lists_what_it_is(
    server: SshServer, connection: Connection
) -> None:
    assert deploy(server, connection, "a") == Recorded(None, ())
    assert deploy(server, connection, "b") == Recorded("a" * 64, ())

    newest, older = versions(connection)
    assert replace(newest.record, deployed=None) == replace(record("b"), deployed=None)
    assert (newest.current, newest.there) == (True, True)
    assert (newest.number, newest.before, older.current) == (2, "a" * 64, False)
    link = server.root / "deployments/net/current"
    assert (link / "model.so").read_bytes() == BODY + b"b"
    assert link.is_symlink()


def test_only_so_many_versions_stay_and_what_nothing_needs_goes_with_the_others(
    server: SshServer, connection: Connection
) -> None:
    for letter in "abc":
        deploy(server, connection, letter)

    assert deploy(server, connection, "d").removed == ("a" * 64,)

    assert letters(connection) == "Dcb"
    assert sorted(f.name[0] for f in (server.root / "models").iterdir()) == ["b", "c", "d"]
    assert len(list((server.root / "objects").iterdir())) == 3
    assert set(deploy(server, connection, "d", keep=1).removed) == {"b" * 64, "c" * 64}
    assert letters(connection) == "D"


def test_another_model_of_the_same_bytes_keeps_them(
    server: SshServer, connection: Connection
) -> None:
    deploy(server, connection, "a", model="other")
    deploy(server, connection, "a", keep=1)

    assert deploy(server, connection, "b", keep=1).removed == ("a" * 64,)

    assert letters(connection) == "B"
    assert letters(connection, "other") == "A"
    assert (server.root / "models" / ("a" * 64) / "model.so").exists()


def test_going_back_twice_goes_further_and_a_new_version_follows_what_was_current(
    server: SshServer, connection: Connection
) -> None:
    for letter in "abc":
        deploy(server, connection, letter)

    for expected in ("cBa", "cbA"):
        chosen = choose_version(versions(connection), "net", None, "desk")
        line = log_line("rolled back", model="net", digest=chosen.record.digest)
        with agent(server, connection) as client:
            client.make_current(chosen.record, line)
        assert letters(connection) == expected
    with pytest.raises(UsageError, match="no version of net before the current one"):
        choose_version(versions(connection), "net", None, "desk")

    deploy(server, connection, "d")
    assert choose_version(versions(connection), "net", None, "desk").record.digest[0] == "a"
    assert letters(connection) == "Dca", "kept is what can be gone back to"


def test_the_same_version_again_is_no_version_before_itself(
    server: SshServer, connection: Connection
) -> None:
    for letter in "abb":
        deploy(server, connection, letter)

    assert letters(connection) == "Ba"
    assert choose_version(versions(connection), "net", None, "desk").record.digest[0] == "a"


def test_what_is_newest_does_not_depend_on_a_clock(
    server: SshServer, connection: Connection
) -> None:
    for letter in "ab":
        deploy(server, connection, letter)
    future = time.time() + 10**8
    for file in server.root.rglob("a*"):
        os.utime(file, (future, future))  # the board's clock was ahead then, and is right now

    deploy(server, connection, "c", keep=2)

    assert letters(connection) == "Cb"


def test_a_device_with_its_clock_in_the_past_says_so_beside_the_hosts_time(
    server: SshServer, connection: Connection
) -> None:
    today = now()[:10]
    deploy(server, connection, "a")
    deploy(server, connection, "b")
    for file in (server.root / "deployments/net").glob("*.version"):
        stamp, rest = file.read_text().split("\n", 1)
        file.write_text(f"{stamp.rpartition(' ')[0]} 86400\n{rest}")
    log = server.root / LOG
    log.write_text(re.sub(r'"clock": \d+', '"clock": 86400', log.read_text()))
    (newest, older) = versions(connection)
    (first, second) = read_log(connection, None, 10)

    assert newest.clock == older.clock == first.clock == "1970-01-02T00:00:00Z"
    assert (newest.current, newest.number) == (True, 2)
    assert str(newest.record.deployed) >= today
    assert str(second.time) >= today


def test_damage_is_found_before_a_version_is_gone_back_to(
    server: SshServer, connection: Connection
) -> None:
    deploy(server, connection, "a")
    assert damaged_files(connection, str(server.root), record("a")) == ()

    (server.root / "models" / ("a" * 64) / "model.so").write_bytes(b"rubbish")
    assert damaged_files(connection, str(server.root), record("a")) == ("model.so",)
    shutil.rmtree(server.root / "models" / ("a" * 64))
    assert damaged_files(connection, str(server.root), record("a")) == ("model.so",)
    assert [v.there for v in versions(connection)] == [False]


def test_a_version_whose_files_are_gone_is_not_made_current(
    server: SshServer, connection: Connection
) -> None:
    deploy(server, connection, "a")

    with (
        agent(server, connection) as client,
        pytest.raises(DeviceError, match="its files are gone"),
    ):
        client.record(record("b"), 3, "{}")

    assert letters(connection) == "A"


def test_a_link_that_cannot_be_changed_is_an_error_and_stays(
    server: SshServer, connection: Connection
) -> None:
    in_the_way = server.root / "deployments/net/current"
    (in_the_way / "folder").mkdir(parents=True)

    with pytest.raises(DeviceError, match="could not make the model its current one: is a dir"):
        deploy(server, connection, "a")

    assert in_the_way.is_dir()
    assert not list(in_the_way.parent.glob("current.new"))
    assert read_log(connection, None, 10) == ()


def test_a_device_without_deployments_lists_none(server: SshServer, connection: Connection) -> None:
    assert read_versions(connection, None) == ()
    shutil.rmtree(server.root)
    assert read_versions(connection, None) == ()
    assert read_log(connection, None, 10) == ()


def test_names_of_models_are_only_names(server: SshServer, connection: Connection) -> None:
    for name in ("../../../x", "$(touch x)", "a\nb", "-rf", "net\x1b[31m", "ünïcode", "current"):
        deploy(server, connection, "a", model=name)

    found = {version.record.model for version in read_versions(connection, None)}
    assert len(found) == 7
    assert all(name.isprintable() for name in found)
    assert len(list((server.root / "deployments").iterdir())) == 7
    assert not list(server.root.rglob("x"))


def test_rubbish_among_the_records_is_left_out_and_stops_nothing(
    server: SshServer, connection: Connection
) -> None:
    deploy(server, connection, "a")
    folder = server.root / "deployments/net"
    (folder / ("f" * 64 + ".version")).write_bytes(b"\xff" * 100_000)
    (folder / "a b $(touch y).version").write_text("99 x\n{}\n")
    (folder / "empty.version").write_text("")
    (folder / ("e" * 64 + ".version")).write_text("099999999999999 z\n" + json.dumps({"schema": 1}))

    assert letters(connection) == "A"
    deploy(server, connection, "b", keep=1)

    assert letters(connection) == "B"
    assert versions(connection)[0].number == 100
    assert not list(server.root.rglob("y"))


def test_two_deployments_at_the_same_time_leave_one_of_them_current(
    server: SshServer, connection: Connection
) -> None:
    from edgekit.devices.linux.lease import lease

    def run(letter: str) -> None:
        with server.connect() as own, lease(own, str(server.root), wait=240):
            deploy(server, own, letter)

    (server.root / "runs").mkdir(exist_ok=True)
    threads = [threading.Thread(target=run, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    shown = letters(connection)
    assert len(shown) == 3
    assert shown[0].isupper(), "the last one to come is the current one"
    assert [version.number for version in versions(connection)] == [4, 3, 2]
    assert len(read_log(connection, None, 10)) == 4


def test_the_log_stays_small_and_goes_on(server: SshServer, connection: Connection) -> None:
    deploy(server, connection, "a")
    (server.root / LOG).open("a").write("x" * LARGEST_LOG + "\n")

    deploy(server, connection, "b")

    assert (server.root / OLDER_LOG).stat().st_size > LARGEST_LOG
    assert (server.root / LOG).stat().st_size < 10_000
    entries = read_log(connection, None, 10)
    assert [str(entry.digest)[0] for entry in entries] == ["a", "b"]
    assert [str(entry.digest)[0] for entry in read_log(connection, None, 1)] == ["b"]


def test_a_log_that_is_followed_gives_what_is_added(
    server: SshServer, connection: Connection
) -> None:
    deploy(server, connection, "a")
    seen: list[LogEntry] = []
    came = threading.Semaphore(0)

    def follow() -> None:
        def take(entry: LogEntry) -> None:
            seen.append(entry)
            came.release()

        with pytest.raises(DeviceError), server.connect() as own:
            read_log(own, None, 5, follow=take)

    thread = threading.Thread(target=follow)
    thread.start()
    assert came.acquire(timeout=240)
    deploy(server, connection, "b")
    assert came.acquire(timeout=240)
    server.drop_connections()
    thread.join(timeout=240)

    assert [str(entry.digest)[0] for entry in seen] == ["a", "b"]
    assert not thread.is_alive()
