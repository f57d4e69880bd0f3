"""The option --junit, and the file that it names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.errors import EdgekitError
from edgekit.cli.options import Decorator

if TYPE_CHECKING:
    from edgekit.base.junit import Case

junit_option: Decorator = click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the outcomes as JUnit XML to this file.",
)


@contextmanager
def junit_file(path: Path | None, verb: str, named: str) -> Iterator[list[Case]]:
    """Write the cases that the block adds. An error that no case tells is a case too."""
    cases: list[Case] = []
    try:
        yield cases
    except EdgekitError as error:
        if all(case.outcome in ("passed", "left out") for case in cases):
            from edgekit.base.junit import case_of_error

            cases.append(case_of_error((named,), verb, error))
        _write(path, verb, named, cases)
        raise
    _write(path, verb, named, cases)


def _write(path: Path | None, verb: str, named: str, cases: list[Case]) -> None:
    from edgekit.base.junit import write_junit

    if path is not None:
        write_junit(path, f"edgekit {verb} {named}", cases)
