"""Damages data: bytes and blocks of it, its numbers, its words. Nothing is known of its format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

BYTES = (0, 1, 0x7F, 0x80, 0xFF, ord("0"), ord("9"), ord("-"), ord('"'), ord("{"), ord("["))
NUMBERS = (0, 1, -1, 127, 128, 255, 65535, 1 << 31, (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1)
WORDS = (
    *(b"null", b"true", b"[]", b"{}", b'""', b"0", b"-1", b"1e999", b"-0.0", b"NaN", b"Infinity"),
    *(b"9" * 400, b"18446744073709551616", b"0x10", b"1.5", b'"\\ud800"', b"\xed\xa0\x80"),
    *(b"[" * 3000, b'{"a":' * 1500, b"../../x", b"/etc/passwd", b"\0", b"\n", b"a" * 5000, b"%s"),
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[\d.eE+]+|\w+|[\[\]{}]')
LONGEST = 1 << 20


def damaged(seeds: Sequence[bytes], chance: Random) -> bytes:
    """One of the seeds with one to a few changes, mostly one."""
    data = chance.choice(seeds)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        data = chance.choice(_WAYS)(data, seeds, chance)[:LONGEST]
    return data


def _flip(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _set(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[chance.randrange(len(data))] = chance.choice((*BYTES, chance.randrange(256)))
    return bytes(changed)


def _set_number(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    width = chance.choice((2, 4, 8))
    at = chance.randrange(len(data) + 1)
    order = "little" if chance.randrange(4) else "big"
    value = chance.choice(NUMBERS) & ((1 << 8 * width) - 1)
    return data[:at] + value.to_bytes(width, order) + data[at + width :]  # type: ignore[arg-type]


def _cut(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _remove(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at + chance.randrange(1, 33) :]


def _repeat(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    block = data[at : at + chance.randrange(1, 65)]
    return data[:at] + block * chance.choice((1, 2, 50)) + data[at:]


def _insert(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(WORDS) + data[at:]


def _splice(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    other = chance.choice(seeds)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


def _other_number(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    match = chance.choice(found)
    value = chance.choice((*map(str, NUMBERS), "1e999", "-1e999", "9" * 400, "1.5", "null", '"x"'))
    return data[: match.start()] + value.encode() + data[match.end() :]


def _other_word(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    found = list(_TOKEN.finditer(data))
    if not found:
        return data
    match = chance.choice(found)
    word = chance.choice((*WORDS, chance.choice(found)[0]))
    return data[: match.start()] + word + data[match.end() :]


_WAYS = (
    *(_flip, _set, _set_number, _cut, _remove, _repeat),
    *(_insert, _splice, _other_number, _other_word, _other_word),
)
