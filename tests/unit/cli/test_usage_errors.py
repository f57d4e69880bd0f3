"""A mistake in a command line is told in words that lead to the right one."""

from __future__ import annotations

import pytest

from edgekit.cli.program import run_command_line


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("run", "missing argument 'BUNDLE'", "`edgekit build MODEL --board NAME` makes"),
        ("device add", "missing argument 'NAME'", "write edgekit device add [OPTIONS] NAME"),
        ("bench b --fail-above 5", "'--fail-above'", "edgekit results compare has --fail-above"),
        ("bench b --runs abc", "'abc' is not a whole number", "see edgekit bench --help"),
        ("bench b --seconds x", "'x' is not a number", "see edgekit bench --help"),
        ("trust nowhere", "there is no file nowhere", "check the path"),
        ("results import no.json", "there is no file no.json", "check the path"),
        ("build m.onnx --baord local", "'--baord'", "did you mean --board?"),
        ("build m.onnx --target rpi4", "'--target'", "did you mean --board?"),
    ],
)
def test_a_mistake_leads_to_what_to_write(
    words: str, message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(words.split()) == 2
    said = capsys.readouterr().err
    assert message in said
    assert hint in said.partition("hint: ")[2]
