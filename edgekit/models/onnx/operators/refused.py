"""Operators that are not possible on a device, with the reason and an alternative."""

from __future__ import annotations

from collections.abc import Mapping

_RANDOM = "it draws random numbers, so its output can't be verified"
_TEXT = "devices don't work with text"
_AFTERWARDS = "export the model without it, and do this step on its outputs"
_BEFORE = "export the model without it, and do this step on its inputs"

REFUSED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("", "Bernoulli"): (_RANDOM, _BEFORE),
    ("", "ImageDecoder"): ("devices don't decode image files", _BEFORE),
    ("", "Multinomial"): (_RANDOM, _AFTERWARDS),
    ("", "RandomNormal"): (_RANDOM, _BEFORE),
    ("", "RandomNormalLike"): (_RANDOM, _BEFORE),
    ("", "RandomUniform"): (_RANDOM, _BEFORE),
    ("", "RandomUniformLike"): (_RANDOM, _BEFORE),
    ("", "RegexFullMatch"): (_TEXT, _BEFORE),
    ("", "StringConcat"): (_TEXT, _BEFORE),
    ("", "StringNormalizer"): (_TEXT, _BEFORE),
    ("", "StringSplit"): (_TEXT, _BEFORE),
    ("", "TfIdfVectorizer"): (_TEXT, _BEFORE),
}
