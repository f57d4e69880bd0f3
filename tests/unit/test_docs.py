"""What the docs tell people to type exists: commands, options, targets, files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from support.pages import files_of
from support.source import ROOT

from benchmarks import figures, headlines
from edgekit.cli import root

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)

GENERATED = {"onnx-operators.md", "models.md", "cli.md", "python-reference.md"} | {
    "torch-operators.md",
    "torch-architectures.md",
}
"""Pages that a program writes."""


@dataclass(frozen=True)
class Typed:
    """A command line in the docs."""

    page: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.text}"


def typed_in(page: Path) -> Iterator[Typed]:
    """Lines of code blocks, and code spans elsewhere."""
    fence = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        opened = re.match(r"\s*```(\w*)", line)
        if opened:
            fence = None if fence is not None else opened[1]
        elif fence in ("", "sh", "console"):
            yield Typed(page, number, _command_part(line))
        elif fence is None:
            for span in re.findall(r"`([^`]+)`", line):
                yield Typed(page, number, _command_part(span))


def _command_part(text: str) -> str:
    """Return the command without prompt, comment, pipe, explanation, or optional brackets."""
    command = re.split(r"\s{2,}|\s#|\s\\?[|>]", text.strip().removeprefix("$ "))[0]
    return re.sub(r"[\[\]]", "", command)


def commands(program: str) -> list[Typed]:
    return [
        typed
        for page in PAGES
        if page.name not in GENERATED
        for typed in typed_in(page)
        if typed.text.split(" ")[0] == program and len(typed.text.split()) > 1
    ]


def complaint(words: list[str]) -> str | None:
    """What click says against a command line; values are not looked at."""
    command: click.Command = root
    context = click.Context(command, info_name="edgekit", **root.context_settings)
    while isinstance(command, click.Group):
        rest = _leave_out_options(words, command, context)
        if not rest:
            return None
        found = command.get_command(context, rest[0])
        if found is None:
            return None if command is not root and command.no_args_is_help else _unknown(rest[0])
        command, words = found, rest[1:]
        context = click.Context(
            command, parent=context, info_name=rest[0], **command.context_settings
        )
    try:
        _, rest, _ = command.make_parser(context).parse_args(list(words))
    except click.UsageError as error:
        return error.format_message()
    return f"unexpected: {' '.join(rest)}" if rest else None


def _leave_out_options(words: list[str], group: click.Group, context: click.Context) -> list[str]:
    parser = group.make_parser(context)
    parser.allow_interspersed_args = False
    return parser.parse_args(list(words))[1]


def _unknown(word: str) -> str:
    return f"no such command: {word}"


@pytest.mark.parametrize("typed", commands("edgekit"), ids=str)
def test_a_command_in_the_docs_can_be_parsed(typed: Typed) -> None:
    assert complaint(shlex.split(typed.text)[1:]) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("build model.onnx --board rpi4 -o DIR", None),
        ("boards show rpi4 --json", None),
        ("bild model.onnx", "no such command: bild"),
        ("build model.onnx --bord rpi4", "No such option"),
        ("completion bash zsh", "unexpected: zsh"),
    ],
)
def test_the_check_itself_tells_right_from_wrong(line: str, expected: str | None) -> None:
    found = complaint(line.split())

    assert found == expected or (expected is not None and expected in (found or ""))


def test_every_make_target_in_the_docs_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))

    assert commands("make")
    own = [typed for typed in commands("make") if typed.text.split()[1] != "-C"]
    assert not [str(typed) for typed in own if typed.text.split()[1] not in targets]


def test_every_make_target_is_explained() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = makefile.split(".PHONY:")[1].split("\n\n")[0].replace("\\\n", " ").split()

    assert set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)) == set(phony)


def test_every_link_in_the_docs_leads_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not target.startswith("https://") and not (page.parent / target).exists()
    ]

    assert not broken


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md"]

    assert not [name for name in pages if f"({name})" not in index]


def test_every_python_file_named_in_the_docs_exists() -> None:
    named = {
        (page, span)
        for page in PAGES
        for span in re.findall(r"`([\w./-]+/[\w.-]+\.py)`", page.read_text(encoding="utf-8"))
    }

    roots = (ROOT, ROOT / "edgekit")
    assert not [
        f"{page.name}: {span}"
        for page, span in named
        if not any((r / span).exists() for r in roots)
        and not (page.parent.name == "adding" and span in files_of(page.name))
    ]


WITHOUT_FIGURES = {
    ("bare-metal.md", "mcu --layers"),
    ("ncnn.md", "onnx_nodes"),
    ("operator.md", "onnx_nodes --filter '^test_lstm'"),
    ("offload.md", "onnx_nodes --offload ncnn --lab --touched"),
    ("rpc.md", "farm"),
    ("rpc.md", "tuning"),
    ("verify.md", "reference_vectors MODEL"),
}
"""Benchmarks that a page names without showing what they print."""


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.name)
def test_figures_say_whether_they_are_older_than_the_code_that_they_judge(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert figures.with_sentences(text) == text, "run python -m benchmarks.figures"


@pytest.mark.parametrize("name", ["README.md", "docs/figures.md"])
def test_the_figures_in_short_are_those_of_the_tables(name: str) -> None:
    text = (figures.ROOT / name).read_text(encoding="utf-8")

    assert headlines.names(text)
    assert headlines.filled(text) == text, "run python -m benchmarks.figures"
    unmarked = re.sub(r"<!-- =.*?<!-- = -->", "", text)
    assert not re.findall(r"\b0\.\d\d\b(?! s)", unmarked), "a figure without a mark"


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.name)
def test_figures_of_a_benchmark_are_dated(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`(?:python (?:-m )?)?benchmarks[./](\w+)(?:\.py)?([^`]*)`", text)
    dated = " ".join(figures.commands(text))

    assert not [
        name + more
        for name, more in named
        if (page.name, name + more) not in WITHOUT_FIGURES
        and name not in ("networks", "census_networks", "model_zoo")
        and not re.search(rf"benchmarks[./]{name}\b", dated)
    ]


def test_a_changed_line_of_code_makes_figures_outdated_and_a_comment_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    (tmp_path / "room").mkdir()
    source = tmp_path / "room/one.py"

    def sentence(code: str, page: str | None = None) -> str:
        source.write_text(code)
        figures.digest.cache_clear()
        text = page or figures.header("python -m benchmarks.x", ["room"], "2026-01-02")
        return figures.with_sentences(text)

    page = sentence('def f():\n    """Return 1."""\n    return "#1"\n')
    dated = "*Measured on 2026-01-02 by `python -m benchmarks.x`"
    assert page.splitlines()[1] == f"{dated}.*"
    same = 'def f():  # why\n    """Return one.\n\n    Twice.\n    """\n    return "#1"\n'
    assert sentence(same, page) == page
    later = sentence(same.replace("#1", "#2"), page)
    changed = "`room` changed since, so that a run may differ.*"
    assert later.splitlines()[1] == f"{dated}. Outdated: {changed}"
    assert sentence(same, later) == page
    sentence(same.replace("#1", "#2"))
    assert "Outdated" not in figures.measured(later)
    assert figures.measured(later + later, last=True).count("Outdated") == 1
    figures.digest.cache_clear()
