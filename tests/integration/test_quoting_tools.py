"""The programs that read what edgekit writes find each text as it was meant."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.needs import needs

from edgekit.aot.names import Unique, identifier
from edgekit.base import quoting

RANDOM = np.random.default_rng(20)
MARKS = "*/\\?\"'<>&|`=+-@%$#[]{}();\n\r\t,_~! :abAB09ß層\u2028\U0001f600\x01\x7f"
NAMED = ("*\\", "/\\*", "??/", "a */ int x; /*", "\\", "%:include", "$(rm)", "${A}", "[exit]", "")


HEADERS = ("ctype", "float", "limits", "math", "setjmp", "signal", "stdint", "stdio", "stdlib")
WORDS = ("exit", "expf", "printf", "read", "index", "conj", "Cos", "errno", "time", "y1", "signbit")
"""Layers that are called as the C library calls something."""


def texts(count: int) -> list[str]:
    """Drawn from what means something in one of the languages."""
    drawn = [
        "".join(RANDOM.choice(list(MARKS), size=int(RANDOM.integers(0, 12)))) for _ in range(count)
    ]
    return [*NAMED, *drawn]


@pytest.mark.parametrize(
    ("compiler", "standard", "suffix"),
    [
        ("gcc", "c99", "c"),
        ("g++", "c++14", "cc"),
        pytest.param("clang", "c99", "c", marks=needs("clang")),
    ],
)
def test_a_compiler_reads_comments_strings_and_names(
    tmp_path: Path, compiler: str, standard: str, suffix: str
) -> None:
    chosen = [*texts(400), *WORDS]
    unique = Unique()
    names = [unique.name(identifier(text)) for text in chosen]
    lines = [f"#include <{header}.h>" for header in (*HEADERS, "string", "time")]
    for name, text in zip(names, chosen, strict=True):
        lines += [
            f"// {quoting.c_comment(text)}",
            f"/* {quoting.c_comment(text)}: by edgekit */",
            f"static const char in_{name}[] = {quoting.c_string(text)};",
            f"static const char *{name}(void) {{ return in_{name}; }}",
        ]
    lines += ["int main(void) {"]
    lines += [f"  fwrite({name}(), 1, sizeof in_{name}, stdout);" for name in names]
    lines += ["  return 0;", "}", ""]
    (tmp_path / f"names.{suffix}").write_text("\n".join(lines), encoding="ascii")
    flags = [f"-std={standard}", "-trigraphs", "-Wall", "-Wextra", "-Wtrigraphs", "-Werror"]
    subprocess.run([compiler, *flags, f"names.{suffix}", "-o", "names"], cwd=tmp_path, check=True)
    printed = subprocess.run(["./names"], cwd=tmp_path, check=True, stdout=subprocess.PIPE)
    assert printed.stdout == b"".join(text.encode() + b"\0" for text in chosen)


@needs("cmake")
@needs("cmake")
def test_cmake_reads_strings(tmp_path: Path) -> None:
    chosen = texts(100)
    lines = [f'file(WRITE "{tmp_path}/all" "")']
    for text in chosen:
        lines.append(f'file(APPEND "{tmp_path}/all" {quoting.cmake_string(text)} "\\n--\\n")')
    script = tmp_path / "strings.cmake"
    script.write_text("\n".join(lines), encoding="utf-8", newline="")
    subprocess.run(["cmake", "-P", script], cwd=tmp_path, check=True)
    assert (tmp_path / "all").read_bytes().decode() == "".join(f"{text}\n--\n" for text in chosen)


@needs("systemd")
@needs("systemd")
def test_systemd_reads_words_of_a_unit(tmp_path: Path) -> None:
    """systemd names each program that a unit would start and that is not there."""
    programs = [
        f"/missing/{text}"
        for text in (f"{number}{text}" for number, text in enumerate(texts(200)))
        if text.isprintable() and not set(text) & set("$/\\\"'*?[")  # no name of a program
    ]
    for number, program in enumerate(programs):
        lines = [
            "[Service]",
            f"ExecStart={quoting.systemd_command([program, '%n', '$HOME', *NAMED])}",
            f"WorkingDirectory={quoting.systemd_path('/tmp/100% of' + chr(92))}",
            f"Environment={quoting.systemd_word('PATH=/bin:$HOME:%h')}",
            "",
        ]
        (tmp_path / f"edgekit-{number}.service").write_text("\n".join(lines), "utf-8", newline="")
    words = ["systemd-analyze", "--user", "verify", *tmp_path.iterdir()]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    told = subprocess.run(words, stderr=subprocess.PIPE, text=True, env=environment).stderr
    assert len(programs) > 20
    read = re.findall(r"Command (/missing/.*) is not executable: No such file", told)
    assert sorted(read) == sorted(programs), told
    assert len(told.splitlines()) == len(programs), told


@needs("ssh")
@needs("ssh")
def test_ssh_reads_words_of_its_configuration(tmp_path: Path) -> None:
    for text in ('a b"c', "100%d", "back\\slash", "x # y", "layer = z", "\u00df"):
        file = tmp_path / "config"
        word = quoting.ssh_config_word(tmp_path / text)
        file.write_text(f"Host *\n  UserKnownHostsFile {word}\n  Port 7\n", encoding="utf-8")
        done = subprocess.run(
            ["ssh", "-G", "-F", file, "board"], stdout=subprocess.PIPE, text=True, check=True
        )
        told = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
        assert told["port"] == "7"
        assert told["userknownhostsfile"] == str(tmp_path / text)
