"""Every command explains itself, whichever way one asks."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from edgekit.cli import COMMANDS, GROUPS, root
from edgekit.cli.help_text import EVERYWHERE
from edgekit.cli.program import run_command_line


def paths(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from paths(found, (*words, name))


ALL = list(paths(root))


@pytest.fixture(autouse=True)
def terminal_of_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_h_help_and_the_verb_help_show_the_same_within_eighty_columns(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for line in ([*words, "-h"], [*words, "--help"], ["help", *words]):
        assert run_command_line(line) == 0
        shown.append(capsys.readouterr())

    assert shown[0].out.startswith(" ".join(["Usage: edgekit", *words, ""]).rstrip())
    assert shown[0].out == shown[1].out == shown[2].out
    assert not any(one.err for one in shown)
    assert all(len(line) <= 80 for line in shown[0].out.splitlines())
    assert "..." not in shown[0].out.replace("]...", "").replace("[ARGS]...", ""), "cut off"
    assert "RANGE" not in shown[0].out


def test_no_command_spends_lines_on_what_all_of_them_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_command_line(["-h"])
    whole = capsys.readouterr().out
    run_command_line(["cache", "prune", "-h"])
    one = capsys.readouterr().out

    assert all(f"{name} " in whole for name in EVERYWHERE)
    assert "--debug  " not in one
    assert "With every command: -q" in one


def test_each_command_stands_in_one_group_and_the_groups_in_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [entry.name for _, entries in GROUPS for entry in entries]
    assert names == [entry.name for entry in COMMANDS]
    assert len(set(names)) == len(names)

    run_command_line(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert [f"{title}:" for title, _ in GROUPS] == [line for line in lines if line[-1:] == ":"][:-1]


@pytest.mark.parametrize("words", [words for words in ALL if words], ids=" ".join)
def test_each_command_refuses_what_it_does_not_know_and_what_it_lacks(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    command: click.Command | None = root
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    lacks = any(isinstance(part, click.Argument) and part.required for part in command.params)
    passes_on = command.ignore_unknown_options
    for line in ([*words, "--no-such-option"] if not passes_on else [], [*words] if lacks else []):
        if line:
            assert run_command_line(line) == 2
            error, hint = capsys.readouterr().err.splitlines()
            assert error.startswith("error: ")
            assert hint.startswith("hint: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["devic"], "did you mean device?"),
        (["device", "ad"], "did you mean add?"),
        (["run", "x"], "edgekit run has no commands"),
    ],
)
def test_help_for_a_command_that_does_not_exist_leads_on(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["help", *words]) == 2
    assert said in capsys.readouterr().err
