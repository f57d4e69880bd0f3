"""A tracker's answers, and whatever else may answer at its port."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import UsageError
from edgekit.rpc.protocol import (
    KeyStatus,
    TrackerAddress,
    TrackerClient,
    TrackerGone,
    parse_summary,
    parse_tracker,
)

MAGIC = struct.pack("<i", 0x2F271)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@contextmanager
def answering(answer: bytes) -> Iterator[TrackerAddress]:
    """Somebody on a port who says that and hangs up, whatever is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.sendall(answer)
                client.shutdown(socket.SHUT_WR)
                while client.recv(1024):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield TrackerAddress("127.0.0.1", listener.getsockname()[1])
        thread.join()


def message(value: object) -> bytes:
    data = json.dumps(value).encode()
    return struct.pack("<i", len(data)) + data


def test_a_summary_counts_free_and_busy_devices_of_each_key() -> None:
    servers = [{"key": "server:rpi4", "addr": ["127.0.0.1", port]} for port in (1, 2, 3)]
    summary = {
        "queue_info": {
            "rpi4": {"free": 1, "pending": 0},
            "nano": {"free": 0, "pending": 2},
            "gone": {"free": 0, "pending": 0},
        },
        "server_info": servers,
    }

    assert parse_summary(summary) == (KeyStatus("nano", 0, 0, 2), KeyStatus("rpi4", 1, 2, 0))


def test_a_device_that_is_offered_twice_is_one_device() -> None:
    summary = {
        "queue_info": {"rpi4": {"free": 2, "pending": 0}},
        "server_info": [{"key": "server:rpi4", "addr": ["127.0.0.1", 1]}],
    }

    assert parse_summary(summary) == (KeyStatus("rpi4", 1, 0, 0),)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"server_info": [{"key": 7}]}, r"server_info\[0\]\.key must be "),
        ({"server_info": {}}, "server_info must be a list"),
        ({"queue_info": {"rpi4": {"free": -1}}}, r"queue_info\.rpi4\.free must be "),
        ({"queue_info": {"rpi4": {"pending": 10**18}}}, r"queue_info\.rpi4\.pending must be "),
    ],
)
def test_a_summary_of_another_form_is_refused_with_the_key(
    change: dict[str, object], fault: str
) -> None:
    summary = {"queue_info": {}, "server_info": []} | change
    with (
        answering(MAGIC + message([0, summary])) as address,
        TrackerClient(address) as client,
        pytest.raises(TrackerGone, match=fault),
    ):
        client.status()


@given(JSON)
def test_any_summary_is_understood_or_refused(value: object) -> None:
    with answering(MAGIC + message([0, value])) as address, TrackerClient(address) as client:
        try:
            statuses = client.status()
        except TrackerGone as error:
            assert "is invalid" in error.message
        else:
            assert all(isinstance(status, KeyStatus) for status in statuses)


@given(st.binary(max_size=60))
def test_anything_else_that_answers_is_no_tracker(answer: bytes) -> None:
    with (
        answering(answer) as address,
        pytest.raises(TrackerGone, match="there is no tracker at"),
        TrackerClient(address) as client,
    ):
        client.request("rpi4", 1, wait=5)


def test_a_tracker_that_is_not_there_is_a_sentence_with_a_way_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = TrackerAddress("127.0.0.1", listener.getsockname()[1])

    with pytest.raises(TrackerGone, match="nothing listens on the port") as caught:
        TrackerClient(address)

    assert caught.value.hint == "start one with `edgekit rpc tracker`"


def test_an_answer_without_end_is_not_waited_for() -> None:
    with (
        answering(MAGIC + struct.pack("<i", 1 << 30)) as address,
        TrackerClient(address) as client,
        pytest.raises(TrackerGone, match="is invalid"),
    ):
        client.status()


def test_a_trackers_address_is_this_machines() -> None:
    assert parse_tracker("localhost:9190") == TrackerAddress("127.0.0.1", 9190)
    with pytest.raises(UsageError, match="not on this host's loopback") as caught:
        parse_tracker("lab.example:9190")
    assert "ssh -L 9190:127.0.0.1:9190 lab.example" in str(caught.value.hint)


@given(st.text(max_size=20))
def test_any_address_is_understood_or_refused(text: str) -> None:
    try:
        address = parse_tracker(text)
    except UsageError as error:
        assert error.hint
    else:
        assert address.host == "127.0.0.1"
        assert 0 < address.port < 1 << 16
