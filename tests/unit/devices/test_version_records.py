"""What lies on a device may have been written by anybody: records of versions, and the log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import DeviceError, UsageError
from edgekit.devices.linux.device_log import LogEntry, clean, log_line, parse_line
from edgekit.devices.linux.version_records import (
    ModelFile,
    ModelInput,
    Version,
    VersionRecord,
    choose_model,
    choose_version,
    folder_of,
    parse_record,
    parse_versions,
    record_text,
)

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=8,
)
HEX = "0123456789abcdef" * 4


def record(digest: str = HEX, model: str = "net") -> VersionRecord:
    return VersionRecord(
        model=clean(model),
        digest=digest,
        board="rpi4",
        files=(ModelFile("model.so", HEX),),
        verified=True,
        median=0.5,
        inputs=(ModelInput("float32", (1, 3)), ModelInput("int8", ())),
    )


def version(letter: str, *, current: bool = False, before: str | None = None) -> Version:
    digest = before * 64 if before else None
    return Version(record(letter * 64), ord(letter), digest, None, current, True)


def test_a_record_is_read_as_it_was_written() -> None:
    written = record()

    assert parse_record(record_text(written)) == written
    assert "\n" not in record_text(record(model="a\nb"))


@given(st.text(max_size=300))
def test_no_text_is_more_than_a_record_or_none(text: str) -> None:
    parse_record(text)
    parse_versions(text)
    parse_line(text)


@given(st.sampled_from(list(json.loads(record_text(record())))), ANY_JSON)
def test_a_record_with_anything_in_it_gives_only_what_is_safe(key: str, value: object) -> None:
    said = {**json.loads(record_text(record())), key: value}

    found = parse_record(json.dumps(said))

    if found is not None:
        assert len(found.digest) == 64
        assert found.model.isprintable()
        assert len(found.model) <= 400
        assert all("/" not in file.name and file.name[0] != "." for file in found.files)
        assert found.median is None or 0 <= found.median < 1e9
        assert all(extent >= 0 for entry in found.inputs for extent in entry.shape)


@given(st.dictionaries(st.sampled_from(list(json.loads(log_line("run")))), ANY_JSON))
def test_an_entry_with_anything_in_it_steers_no_terminal(said: dict[str, Any]) -> None:
    entry = parse_line(json.dumps({"event": "run", **said}))

    if entry is not None:
        texts = [entry.event, entry.by, entry.model, entry.message, *entry.last_lines]
        assert all(text.isprintable() for text in texts if text is not None)
        assert all(len(text) <= 400 for text in texts if text is not None)


@given(st.text())
def test_a_models_folder_is_one_plain_name(name: str) -> None:
    folder = folder_of(name)

    assert folder.isascii()
    assert 1 <= len(folder) <= 64
    assert folder[0] not in ".-"
    assert "/" not in folder
    assert not any(letter.isspace() for letter in folder)


@given(st.text(max_size=80), st.text(max_size=80))
def test_two_models_have_two_folders(one: str, other: str) -> None:
    assert one == other or folder_of(one) != folder_of(other)


def test_an_entry_is_read_as_it_was_written() -> None:
    error = DeviceError("it \x1b[31mcrashed", hint="h", details=("last", "words" * 1000))

    entry = parse_line(log_line("run", model="net", digest=HEX, seconds=0.25, error=error))

    assert isinstance(entry, LogEntry)
    assert (entry.event, entry.failed, entry.model) == ("run", True, "net")
    assert entry.message == "it \\x1b[31mcrashed"
    assert entry.last_lines[0] == "last"
    assert len(entry.last_lines[1]) == 400
    assert entry.seconds == 0.25
    assert entry.clock is None


@pytest.mark.parametrize(
    ("clock", "shown"),
    [(0, "1970-01-01T00:00:00Z"), (10**15, None), (-1, None), (True, None), ("now", None)],
)
def test_a_clock_that_no_clock_shows_is_none(clock: object, shown: str | None) -> None:
    entry = parse_line(json.dumps({"event": "run", "clock": clock}))

    assert entry is not None
    assert entry.clock == shown


def test_a_record_in_the_folder_of_another_model_or_version_does_not_count() -> None:
    text = record_text(record())

    def listed(folder: str, digest: str) -> int:
        return len(parse_versions(f"model none {folder}\nversion there {digest}\n1 none 5\n{text}"))

    assert listed("net", HEX) == 1
    assert listed("other", HEX) == 0
    assert listed("net", "a" * 64) == 0


def test_a_model_is_chosen_by_its_name_or_because_it_is_the_only_one() -> None:
    net, other = version("a"), Version(record("b" * 64, "other"), 1, None, None, False, True)

    assert choose_model([net], None, "desk") == "net"
    assert choose_model([net, other], "other", "desk") == "other"
    with pytest.raises(UsageError, match="several models on desk: net, other"):
        choose_model([net, other], None, "desk")
    with pytest.raises(UsageError, match="nothing was deployed to desk"):
        choose_model([], None, "desk")


def test_a_version_is_chosen_by_what_was_before_or_by_its_first_characters() -> None:
    versions = [version("c", current=True, before="a"), version("b", before="a"), version("a")]

    def chosen(to: str | None) -> str:
        return choose_version(versions, "net", to, "desk").record.digest[0]

    assert chosen(None) == "a"
    assert chosen("BBB") == "b"
    with pytest.raises(UsageError, match="cccccccccccc is the current version"):
        chosen("cc")
    with pytest.raises(UsageError, match="there is no version dd of net on desk"):
        chosen("dd")
    alike = [version("b"), Version(record("b" * 63 + "c"), 1, None, None, True, True)]
    with pytest.raises(UsageError, match="there are 2 versions bb of net on desk"):
        choose_version(alike, "net", "bb", "desk")


def test_what_was_current_before_and_is_gone_is_not_gone_back_to() -> None:
    with pytest.raises(UsageError, match="no version of net before the current one") as caught:
        choose_version([version("c", current=True, before="a"), version("b")], "net", None, "desk")

    assert "bbbbbbbbbbbb" in str(caught.value.hint)
