"""QEMU's control channel: answers are found among events, and any other line is refused."""

from __future__ import annotations

import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.twin.qmp import Qmp, QmpError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["error", "return", "desc", "event"]) | st.text(), inner)
    ),
    max_leaves=8,
)


def answer(*lines: bytes) -> object:
    emulator, client = socket.socketpair()
    with emulator, client:
        emulator.sendall(b"".join(line + b"\n" for line in lines))
        emulator.shutdown(socket.SHUT_WR)
        return Qmp(client, 5.0).execute("query-status")


def test_an_answer_is_found_among_events() -> None:
    event = json.dumps({"event": "STOP", "timestamp": {"seconds": 1}}).encode()

    assert answer(event, b'{"return": {"status": "running"}}') == {"status": "running"}


def test_a_refusal_is_quoted() -> None:
    with pytest.raises(QmpError, match="refuses query-status: not now"):
        answer(b'{"error": {"class": "GenericError", "desc": "not now"}}')


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"hello", "does not speak QMP"),
        (b"[]", "the document must be a table"),
        (b'{"return": 1}', "return must be a table"),
        (b'{"error": {"class": "x"}}', "error.desc"),
        (b'{"error": {"desc": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "does not speak QMP"),
    ],
)
def test_a_line_of_another_form_is_refused_with_the_key(line: bytes, fault: str) -> None:
    with pytest.raises(QmpError, match=fault):
        answer(line)


@given(JSON)
def test_any_line_is_an_answer_or_refused(value: object) -> None:
    try:
        found = answer(json.dumps(value).encode())
    except QmpError:
        return
    assert isinstance(value, dict)
    assert found == value["return"]
