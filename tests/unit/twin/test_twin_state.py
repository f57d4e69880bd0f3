"""What is written about a twin comes back as it was, and anything else is refused in one way."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import DeviceError
from edgekit.base.json_text import json_text
from edgekit.twin.state import Hardware, TwinState, parse_state, read_state, write_state

STATE = TwinState(
    name="kitchen",
    board="rpi4",
    uuid=str(uuid.UUID(int=7)),
    hardware=Hardware("virt", "cortex-a72", 2, 1 << 30),
    image="0" * 64,
    port=40022,
    wanted=True,
)
DOCUMENT: dict[str, Any] = json.loads(json_text(STATE))

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "kitchen"
    folder.mkdir()
    write_state(folder, STATE)
    assert read_state(folder) == STATE


def test_a_state_from_before_there_were_two_inits_is_busyboxs() -> None:
    older = {key: value for key, value in DOCUMENT.items() if key != "init"}
    state = parse_state(json.dumps(older).encode(), "kitchen")
    assert state.init == "busybox"


def test_a_state_from_before_clocks_could_count_instructions_has_the_hosts() -> None:
    hardware = {key: value for key, value in DOCUMENT["hardware"].items() if key != "icount"}
    state = parse_state(json.dumps(DOCUMENT | {"hardware": hardware}).encode(), "kitchen")
    assert not state.hardware.icount


def test_no_state_is_no_twin(tmp_path: Path) -> None:
    assert read_state(tmp_path / "kitchen") is None


@given(st.binary())
def test_garbage_is_a_damaged_twin(data: bytes) -> None:
    with pytest.raises(DeviceError, match="damaged"):
        parse_state(data, "kitchen")


@given(st.sampled_from(sorted(DOCUMENT)), ANY_JSON)
def test_a_wrong_value_is_a_damaged_twin_or_a_valid_one(key: str, value: object) -> None:
    _parses_or_is_damaged({**DOCUMENT, key: value})


@given(st.sampled_from(sorted(DOCUMENT["hardware"])), ANY_JSON)
def test_a_wrong_hardware_is_a_damaged_twin_or_a_valid_one(key: str, value: object) -> None:
    _parses_or_is_damaged({**DOCUMENT, "hardware": {**DOCUMENT["hardware"], key: value}})


@given(st.integers(0, len(json_text(STATE)) - 1))
def test_a_truncated_file_is_a_damaged_twin(length: int) -> None:
    with pytest.raises(DeviceError, match="damaged"):
        parse_state(json_text(STATE).encode()[:length], "kitchen")


@pytest.mark.parametrize("key", sorted(DOCUMENT.keys() - {"init"}))
def test_a_missing_key_is_a_damaged_twin(key: str) -> None:
    document = {name: value for name, value in DOCUMENT.items() if name != key}
    with pytest.raises(DeviceError, match="damaged") as raised:
        parse_state(json.dumps(document).encode(), "kitchen")
    assert "--delete" in (raised.value.hint or "")


def test_another_twins_state_is_not_taken_for_this_ones() -> None:
    with pytest.raises(DeviceError, match="another twin"):
        parse_state(json_text(STATE).encode(), "garden")


def _parses_or_is_damaged(document: dict[str, Any]) -> None:
    try:
        state = parse_state(json.dumps(document).encode(), "kitchen")
    except DeviceError:
        return
    assert json.loads(json_text(state)) == {**document, "uuid": state.uuid, "schema": 1}
