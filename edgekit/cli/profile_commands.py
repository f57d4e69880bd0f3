"""The commands list, show, new and check, for boards and for toolchains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import click

from edgekit.base.errors import ProfileError
from edgekit.base.paths import ProfileKind
from edgekit.cli.console import Console
from edgekit.cli.options import Group, json_option, pass_console
from edgekit.profiles.new_profile import copy_profile
from edgekit.profiles.reader import (
    Problem,
    ProfileEntry,
    TableReader,
    find_profile,
    list_profiles,
    load_profile,
    profile_error,
    read_profile,
    shadowed_profiles,
    trust_profile,
)

T = TypeVar("T")


@dataclass(frozen=True)
class ProfileView(Generic[T]):
    """The reader and the columns of one kind of profile."""

    kind: ProfileKind
    noun: str
    type: click.types.StringParamType
    parse: Callable[[Path], Callable[[TableReader, Path], T | None]]
    """A function that makes the parser for a workspace's folder."""
    check: Callable[[Path, Path], tuple[Problem, ...]]
    """A function that checks a file, with the profiles of a workspace's folder."""
    columns: tuple[str, ...]
    row: Callable[[T], Sequence[object]]
    """The cells of the columns after the name."""
    fields: Callable[[T], Sequence[tuple[str, object]]]
    right: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    """The columns that a narrow terminal does without, the first one first."""


@dataclass(frozen=True)
class ShownProfile(Generic[T]):
    profile: T
    hides: tuple[Path, ...]
    """Profiles with the same name further down the search path."""


@dataclass(frozen=True)
class NewProfile:
    name: str
    like: Path
    path: Path


@dataclass(frozen=True)
class CheckedProfile:
    path: Path
    ok: bool
    problems: tuple[Problem, ...]


def profile_group(view: ProfileView[T]) -> click.Group:
    """Return the commands for one kind of profile."""

    @click.group(
        view.kind,
        cls=Group,
        invoke_without_command=True,
        help=f"List, show, create or check {view.noun} profiles.",
    )
    @json_option
    @pass_console
    def group(console: Console) -> None:
        if click.get_current_context().invoked_subcommand is None:
            folder = console.workspace.data.folder
            entries = list_profiles(view.kind, view.parse(folder), folder)
            console.report(entries, lambda: _render_list(console, view, entries))

    @group.command("show", help=f"Show a {view.noun} profile and its file.")
    @click.argument("name", type=view.type)
    @json_option
    @pass_console
    def show(console: Console, name: str) -> None:
        folder = console.workspace.data.folder
        path = find_profile(view.kind, name, folder)
        profile = read_profile(path, view.kind, view.parse(folder))
        shown = ShownProfile(profile, shadowed_profiles(view.kind, path, folder))
        console.report(shown, lambda: _render_profile(console, view, path, shown))

    @group.command("new", help=f"Create a {view.noun} profile from a similar one.")
    @click.argument("name")
    @click.option(
        "--like", required=True, type=view.type, metavar="NAME", help="The profile to start from."
    )
    @click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"The file to write.  [default: ./{view.kind}/NAME.toml]",
    )
    @click.option("--force", is_flag=True, help="Replace an existing file.")
    @json_option
    @pass_console
    def new(console: Console, name: str, like: str, output: Path | None, force: bool) -> None:
        folder = console.workspace.data.folder
        source = find_profile(view.kind, like, folder)
        load_profile(source, view.kind, view.parse(folder))
        path = copy_profile(view.kind, source, name, output, force=force)
        trust_profile(path, view.kind)  # a copy of a trusted profile
        made = NewProfile(name, source, path)
        console.report(made, lambda: console.print(f"wrote {path}; edit it, then check it"))

    @group.command("check", help=f"Report all problems of a {view.noun} profile.")
    @click.argument("file", type=click.Path(path_type=Path))
    @json_option
    @pass_console
    def check(console: Console, file: Path) -> None:
        problems = view.check(file, console.workspace.data.folder)
        checked = CheckedProfile(file, not problems, problems)
        if problems and not console.as_json:
            raise profile_error(file, view.kind, problems)
        console.report(checked, lambda: console.print(f"{file} is a sound {view.noun} profile"))
        if problems:
            click.get_current_context().exit(ProfileError.exit_code)

    return group


def _render_list(
    console: Console, view: ProfileView[T], entries: Sequence[ProfileEntry[T]]
) -> None:
    sound = [
        (entry.name, *view.row(entry.profile)) for entry in entries if entry.profile is not None
    ]
    console.table(("name", *view.columns), sound, right=view.right, spare=view.spare)
    for entry in entries:
        if entry.trouble is not None:
            console.events.warn(f"{entry.name} cannot be used: {entry.trouble}")


def _render_profile(
    console: Console, view: ProfileView[T], path: Path, shown: ShownProfile[T]
) -> None:
    hidden = [("hides", hidden) for hidden in shown.hides]
    console.fields([*view.fields(shown.profile), ("profile", path), *hidden])
