"""What a device says is taken apart, and what makes no sense is told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import DeviceError
from edgekit.devices.linux.agent_messages import (
    STARTING,
    AgentMessages,
    parse_bench,
    parse_info,
)
from edgekit.devices.linux.preflight import missing_features, parse_libraries, required_features
from edgekit.devices.linux.probe import check_place, parse_answer

ANSWER = """\
Welcome to my board!
root /home/pi/.local/share/edgekit
machine aarch64
kernel 6.1.21-v8+
hostname raspberrypi
glibc {glibc}
tool sha256sum
tool cat
tool mkdir
tool mv
tool tee
free 1024
place {place}
memory 2048
cpuinfo
processor\t: 0
Features\t: fp asimd evtstrm crc32 cpuid
processor\t: 1
Features\t: fp asimd evtstrm crc32 aes cpuid
"""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("glibc 2.36", (2, 36)),
        ("ldd (Debian GLIBC 2.36-9+deb12u9) 2.36", (2, 36)),
        ("ldd (Ubuntu GLIBC 2.35-0ubuntu3.8) 2.35", (2, 35)),
        ("ld.so (Debian GLIBC 2.31-13+rpt2) stable release version 2.31.", (2, 31)),
        ("musl libc (aarch64) Version 1.2.4", ()),
        ("sh: ldd: not found", ()),
        ("", ()),
    ],
)
def test_the_version_of_glibc_is_found_however_it_is_told(
    text: str, version: tuple[int, ...]
) -> None:
    facts = parse_answer(ANSWER.format(glibc=text, place="ok"))

    assert facts is not None
    assert facts.glibc == version
    assert (facts.free, facts.memory_available) == (1 << 20, 2 << 20)
    assert facts.trouble is None


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("noexec sh: 1: /x/.probe: Permission denied", "nothing may be run"),
        ("unwritable mkdir: cannot create directory '/x': Read-only file system", "read-only"),
        ("unwritable", "can't be written to"),
    ],
)
def test_a_place_that_is_none_is_refused(place: str, says: str) -> None:
    facts = parse_answer(ANSWER.format(glibc="glibc 2.36", place=place))

    assert facts is not None
    with pytest.raises(DeviceError, match=says):
        check_place(facts, "pi")


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    facts = parse_answer(ANSWER.format(glibc="glibc 2.36", place="ok"))

    assert facts is not None
    check_place(facts, "pi", 1 << 20)
    with pytest.raises(DeviceError, match=r"1 MiB free .* 2 MiB are needed"):
        check_place(facts, "pi", 2 << 20)


@given(st.text())
def test_an_answer_that_is_none_is_seen_as_that(text: str) -> None:
    facts = parse_answer(text)

    assert facts is None or facts.root.startswith("/")


@given(st.text() | st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(
        ["error", "phase", "sample", "nanoseconds", "threads", "warmup", "agent"]) | st.text(),
        inner),
    max_leaves=8,
).map(json.dumps))  # fmt: skip
def test_whatever_an_agent_says_breaks_nothing(line: str) -> None:
    messages = AgentMessages()
    messages.take(line)
    for parse in (parse_info, lambda text, name: parse_bench(messages.answer or {}, name)):
        with pytest.raises(DeviceError, match="makes no sense"):
            parse(line, "pi")


@pytest.mark.parametrize(
    "message",
    [
        {"phase": 5},
        {"phase": "measuring", "progress": -1},
        {"sample": "0", "nanoseconds": "7"},
        {"error": ["no"]},
        {"state": "listening", "port": 70_000},
    ],
)
def test_a_message_that_does_not_fit_its_kind_is_a_print_of_the_model(
    message: dict[str, object],
) -> None:
    messages = AgentMessages()

    assert messages.take(json.dumps(message)) is None
    assert (messages.phase, messages.samples, messages.error) == (STARTING, [], None)
    assert messages.answer is None


def test_the_targets_instructions_are_looked_up_on_every_core() -> None:
    cpuinfo = ANSWER.partition("cpuinfo\n")[2]

    def missing(cpu: str, *features: str) -> tuple[str, ...]:
        target = json.dumps({"kind": "llvm", "mcpu": cpu, "mattr": list(features)})
        return missing_features(target, "aarch64", cpuinfo)

    assert missing("cortex-a72", "+neon", "-aes", "-sha2") == ()
    assert missing("cortex-a72", "+neon") == ("aes", "sha2")
    assert missing("cortex-a72", "-aes", "-sha2", "+dotprod") == ("asimddp",)
    assert "asimdhp" in missing("cortex-a76", "-aes", "-sha2")
    assert missing("generic", "+neon") == ()


@pytest.mark.parametrize("board", ["rpi4", "rpi5"])
def test_every_feature_of_a_board_is_one_that_the_kernel_has_a_word_for(board: str) -> None:
    from edgekit.profiles.board import load_board

    loaded = load_board(board)

    needed = required_features(loaded.target.as_json(), loaded.cpu.arch)
    assert set(needed) <= set(loaded.cpu.features)


def test_the_newest_version_of_a_library_counts() -> None:
    there, versions = parse_libraries(
        "library libstdc++.so.6 /usr/lib/libstdc++.so.6\nversion GLIBCXX_3.4.9\n"
        "version GLIBCXX_3.4.30\nversion CXXABI_1.3\nversion CXXABI_1.3.13\n"
        "library libm.so.6 none\nnoise\n"
    )

    assert there == {"libstdc++.so.6"}
    assert versions == {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}
