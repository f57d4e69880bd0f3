"""Options of the commands that build: what decides a build, and what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from edgekit.cli.adaptation_options import ends_option, reshape_option
from edgekit.cli.options import (
    TOOLCHAIN,
    Decorator,
    board_option,
    constant_option,
    grouped,
    model_argument,
    shape_option,
    state_option,
)

toolchain_option: Decorator = click.option(
    "--toolchain",
    "toolchain_name",
    type=TOOLCHAIN,
    metavar="NAME",
    help="Use another toolchain than the board's own.",
)
"""An option that adds `toolchain_name: str | None`."""


class _Backends(click.ParamType[tuple[str, ...]]):
    """A comma-separated list of names in order of preference, or `none` (empty) or `auto`."""

    name = "backends"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        words = [word.strip() for word in str(value).split(",")]
        if words == ["none"]:
            return ()
        alone = {"none", "auto"} & set(words) and len(words) > 1
        if "" in words or alone or len(set(words)) < len(words):
            self.fail(f"{value!r} is no list of different backends such as NAME,NAME", param, ctx)
        return tuple(words)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from edgekit.backends.registry import backend_names

        before, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(f"{before}{comma}{name}")
            for name in (*backend_names(), *(() if comma else ("none", "auto")))
            if name.startswith(last)
        ]


_offload_option: Decorator = click.option(
    "--offload",
    type=_Backends(),
    metavar="NAMES",
    help="Libraries to run parts of the model in, the preferred first; none; or "
    "auto: those that were measured to be faster.  [default: the board profile's]",
)

_one_layer_option: Decorator = click.option(
    "--one-layer-each",
    is_flag=True,
    hidden=True,
    help="Make every layer its own region, to measure what merging gains.",
)


def _build_keywords(board_name: str | None, toolchain_name: str | None, **given: Any) -> Any:
    no_verify = given.pop("no_verify", False)
    verify = {"verify": False} if no_verify else {}
    return {"board": board_name, "toolchain": toolchain_name, **verify, **given}


def _deciding(*further: Decorator) -> Decorator:
    return grouped(
        "how",
        _build_keywords,
        board_option,
        toolchain_option,
        _offload_option,
        _one_layer_option,
        shape_option,
        constant_option,
        reshape_option,
        ends_option,
        state_option,
        *further,
    )


deciding_options = _deciding()
"""Options that add `how: BuildKeywords`, which decides a build."""


def to_be_built_with(*further: Decorator) -> Decorator:
    """Add `model: Path | None`, and `how: BuildKeywords`, which decide a build."""
    options = _deciding(*further)
    return lambda function: model_argument(options(function))


to_be_built = to_be_built_with()


_out_option: Decorator = click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder for the bundle.  [default: build/MODEL-BOARD]",
)

_no_cache_option: Decorator = click.option(
    "--no-cache", is_flag=True, help="Neither read nor write the build cache."
)


def outcome_options(*further: Decorator) -> Decorator:
    """Add `outcome`, the keywords `out` and `use_cache` and those of further options."""
    return grouped("outcome", _outcome_keywords, _out_option, *further, _no_cache_option)


def _outcome_keywords(no_cache: bool, **given: Any) -> Any:
    bench = {"bench": not given.pop("no_bench")} if "no_bench" in given else {}
    return {"use_cache": not no_cache, **bench, **given}
