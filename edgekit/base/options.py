"""Names the options in a message as the caller knows them: `--shape`, or `shapes=` in Python."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_VARIABLE = "EDGEKIT_OPTIONS"
"""Set for child processes of the command line, whose messages it shows."""

KEYWORDS: Mapping[str, str] = {
    "accept-noise": "accept_noise=True",
    "again": "again=True",
    "all": "every=True",
    "allow-nonfinite": "allow_nonfinite=True",
    "at": "at=",
    "atol": "tolerance=",
    "board": "board=",
    "calibrate": "calibrate=",
    "channel": "channel=",
    "constant": "constants=",
    "device": "device=",
    "dump-ir": "dump_ir=",
    "format": "code_format=",
    "input": "inputs=",
    "key": "key=",
    "measure": "measure=True",
    "memory-map": "memory_map=True",
    "model": "model=",
    "no-verify": "verify=False",
    "offload": "offload=",
    "out": "out=",
    "plain-http": "plain_http=True",
    "prefix": "prefix=",
    "quick-tune": "tune=",
    "random": "random=",
    "rtol": "tolerance=",
    "runs": "runs=",
    "shape": "shapes=",
    "reshape": "reshape=True",
    "ends": "ends=",
    "state": "state=",
    "trace": "trace=",
    "steps": "tolerance=",
    "symmetric": "symmetric=True",
    "timeout": "timeout=",
    "to": "to=",
    "toolchain": "toolchain=",
    "twin": "twin=True",
    "zip": "archive=True",
}
"""Keyword arguments of the Python API by their option. Other options are the command line's."""

_is_command_line = bool(os.environ.pop(_VARIABLE, ""))


def option(name: str, value: object = "") -> str:
    """Name an option, with a value if there is one: `--board rpi4`, or `board="rpi4"`.

    Call it when the message is made: only then is the caller known.
    """
    if _is_command_line or name not in KEYWORDS:
        return f"--{name} {value}".rstrip()
    keyword, text = KEYWORDS[name], str(value)
    if not text or not keyword.endswith("="):
        return keyword
    key, equals, rest = text.partition("=")
    if name in ("at", "constant", "input", "shape") and not equals:
        return f'{keyword[:-1]}["{key}"]'
    if equals:
        value = f'"{rest}"' if ".." in rest else f"({rest})" if "," in rest else rest
        return f'{keyword}{{"{key}": {value}}}'
    return f"{keyword}{text}" if text.isdigit() else f'{keyword}"{text}"'


@contextmanager
def named_as_on_the_command_line(yes: bool = True) -> Iterator[None]:
    """Name options as the command line does until the block ends."""
    global _is_command_line
    before, _is_command_line = _is_command_line, yes
    try:
        yield
    finally:
        _is_command_line = before


def options_environment() -> dict[str, str]:
    """Return the variables that let a child process name options as this one does."""
    return {_VARIABLE: "1"} if _is_command_line else {}
