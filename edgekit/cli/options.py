"""Options and arguments that several commands share.

Every command gets the global flags (--quiet, --verbose, --debug, --no-color) when it is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from edgekit.base.errors import EdgekitError, UsageError
from edgekit.base.paths import ProfileKind
from edgekit.base.shapes import Shape, ShapeError, read_shape
from edgekit.base.wording import natural
from edgekit.cli.adaptation_options import ends_option, reshape_option
from edgekit.cli.console import Console
from edgekit.cli.help_text import write_commands, write_options
from edgekit.cli.other_words import hint_for
from edgekit.models.model import MODEL_SUFFIXES

if TYPE_CHECKING:
    from edgekit.base.arrays import Array

P = ParamSpec("P")
R = TypeVar("R")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_MANIFEST = "manifest.json"


class Command(click.Command):
    """A command that names itself in its usage errors, so that the hint can name its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click omits it if an option lacks its value
            raise


class Group(click.Group):
    """A group that suggests the nearest command, and shows its help when called bare."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_commands(self, ctx, formatter)
        write_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if (
            not ctx.resilient_parsing
            and not word.startswith("-")
            and self.get_command(ctx, word) is None
        ):
            raise UsageError(
                f"there is no command {ctx.command_path} {word}",
                hint=hint_for(word, self.list_commands(ctx), ctx.command_path),
            )
        return super().resolve_command(ctx, args)


def console_of(context: click.Context) -> Console:
    """Return the console of this run, which nested commands share."""
    return context.find_root().ensure_object(Console)


def pass_console(command: Callable[Concatenate[Console, P], R]) -> Callable[P, R]:
    """Pass the console to a command as its first argument."""

    def with_console(*args: P.args, **kwargs: P.kwargs) -> R:
        return command(console_of(click.get_current_context()), *args, **kwargs)

    return update_wrapper(with_console, command)


def add_global_flags(command: click.Command) -> click.Command:
    """Add the global flags to a command and to all commands below it."""
    present = {name for parameter in command.params for name in parameter.opts}
    command.params.extend(flag for flag in _global_flags() if flag.opts[0] not in present)
    if isinstance(command, click.Group):
        for nested in command.commands.values():
            add_global_flags(nested)
    return command


def _global_flags() -> list[click.Option]:
    return [
        _flag(["--quiet", "-q"], "quiet", True, "Show results and errors only."),
        _flag(["--verbose", "-v"], "verbose", True, "Show every step."),
        _flag(["--debug"], "debug", True, "Show the traceback of an error."),
        _flag(["--no-color"], "color", False, "No colours, no live display."),
    ]


def _flag(names: list[str], attribute: str, value: bool, help_text: str) -> click.Option:
    def remember(context: click.Context, parameter: click.Parameter, given: bool) -> None:
        if given:
            setattr(console_of(context), attribute, value)

    return click.Option(
        names,
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=remember,
        help=help_text,
    )


def _remember_json(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        console_of(context).as_json = True


json_option: Decorator = click.option(
    "--json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_remember_json,
    help="Print one JSON document on stdout.",
)
"""An option for commands that call `console.report(document, render)`."""


def _remember_csv(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    console_of(context).csv_path = path


csv_option: Decorator = click.option(
    "--csv",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    expose_value=False,
    callback=_remember_csv,
    help="Write the whole list to this file.",
)
"""An option for commands that call `console.listing(columns, rows)`."""


class _Named(click.types.StringParamType):
    """A word from a list that is computed only for shell completion."""

    def __init__(self, name: str, known: Callable[[], Iterable[str]]) -> None:
        self.name = name
        self._known = known

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            words = self._known()
        except EdgekitError:
            return []  # completion must not report a broken project file
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


FITTING_PATH, FOLDER_TO_ENTER = "path", "folder"
"""Completion types, in addition to click's own, that the shells treat as paths."""


class _FilePath(click.Path):
    """A path that completes to fitting files and to folders, or as the shell does by default."""

    def __init__(
        self, name: str, fits: Callable[[Path], bool], otherwise: Literal["file", "dir"] = "file"
    ) -> None:
        super().__init__(readable=False, path_type=Path)
        self.name = name
        self._fits = fits
        self._otherwise = otherwise

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        typed, slash, start = incomplete.rpartition("/")
        try:
            paths = sorted(Path(typed + slash).expanduser().iterdir(), key=natural)
            kinds = {path.name: self._kind(path) for path in paths if _is_offered(path.name, start)}
        except (OSError, RuntimeError):  # no such folder, no such user
            kinds = {}
        found = [
            CompletionItem(f"{typed}{slash}{name}", type=kind)
            for name, kind in kinds.items()
            if kind is not None
        ]
        return found or [CompletionItem(incomplete, type=self._otherwise)]

    def _kind(self, path: Path) -> str | None:
        if self._fits(path):
            return FITTING_PATH
        return FOLDER_TO_ENTER if path.is_dir() else None


def _is_offered(name: str, start: str) -> bool:
    """Return whether to offer a name: a hidden one needs a dot, newlines break the protocol."""
    hidden = name.startswith(".") and not start.startswith(".")
    return name.startswith(start) and not hidden and "\n" not in name


def _known_profiles(kind: ProfileKind) -> Callable[[], Iterable[str]]:
    def names() -> Iterable[str]:
        from edgekit.profiles.reader import profile_names
        from edgekit.project.workspace import open_workspace

        return profile_names(kind, open_workspace().folder)

    return names


def _known_devices() -> Iterable[str]:
    return ("local", *_known_remote_devices())


def _known_remote_devices() -> Iterable[str]:
    from edgekit.devices.registry import known_devices
    from edgekit.project.workspace import open_workspace

    return known_devices(open_workspace().shown_project)


def is_model_file(path: Path) -> bool:
    return path.suffix.lower() in MODEL_SUFFIXES and path.is_file()


def is_bundle(path: Path) -> bool:
    """Return whether this is a bundle. Of a .zip only the list of files is read."""
    if path.suffix != ".zip":
        return (path / _MANIFEST).is_file()
    from edgekit.base.zip_reader import ZipError, read_zip

    try:
        with path.open("rb") as stream:
            return _MANIFEST in read_zip(stream)
    except (OSError, ZipError):
        return False


BOARD = _Named("board", _known_profiles("boards"))
TOOLCHAIN = _Named("toolchain", _known_profiles("toolchains"))
DEVICE = _Named("device", _known_devices)
REMOTE_DEVICE = _Named("device", _known_remote_devices)
MODEL_FILE = _FilePath("model", is_model_file)
BUNDLE_PATH = _FilePath("bundle", is_bundle, otherwise="dir")
REPORTED = _FilePath("subject", lambda path: is_model_file(path) or is_bundle(path))
"""A bundle, a model file, or the id of a run, which is no path but reads as one."""

board_option: Decorator = click.option(
    "--board",
    "-b",
    "board_name",
    type=BOARD,
    metavar="NAME",
    help="The kind of board; edgekit boards lists them.",
)
"""An option that adds `board_name: str | None`."""


def parse_shape_option(text: str, option: str = "shape") -> tuple[str, Shape]:
    """Parse `name=1x3x224x224` or `name=1x(1..512)`. The name may contain an equals sign."""
    name, separator, extents = text.rpartition("=")
    if not separator or not name:
        raise UsageError(
            f"--{option} {text} names no input",
            hint=f"write --{option} name=1,3,224,224; edgekit inspect lists the names",
        )
    try:
        return name, read_shape(extents)
    except ShapeError as error:
        raise UsageError(
            f"--{option} {name}: {extents or 'nothing'} {error}",
            hint=f"write --{option} name=1,3,224,224"
            + ", or name=1x(1..512) for a dimension that varies" * (option == "shape"),
        ) from error


def parse_constant_option(text: str) -> tuple[str, Array]:
    """Parse `axes=1,2`, `ratio=0.5` or `x=file.npy`.

    Whole numbers become int64, others float32, `true` and `false` bool. One number without a
    comma is a scalar; `1,` is a list of one.
    """
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise UsageError(
            f"--constant {text} is not a name and a value",
            hint="write --constant axes=1,2 or --constant x=file.npy",
        )
    if value.endswith(".npy"):
        from edgekit.models.constants import read_constant

        return name, read_constant(Path(value), name)
    return name, _parse_numbers(text, value)


def _parse_numbers(text: str, value: str) -> Array:
    from edgekit.models.constants import numbers

    parts = [_parse_number(part.strip()) for part in value.removesuffix(",").split(",")]
    array = None if None in parts else numbers(parts if "," in value else parts[0])
    if array is None:
        raise UsageError(
            f"--constant {text}: {value} is neither numbers nor a .npy file",
            hint="write --constant axes=1,2 or --constant x=file.npy",
        )
    return array


def _parse_number(word: str) -> bool | int | float | None:
    if word in ("true", "false"):
        return word == "true"
    if re.fullmatch(r"[+-]?[0-9]{1,18}", word):
        return int(word)
    try:
        return float(word) if word.isascii() else None
    except ValueError:
        return None


def _collect(
    option: str, parse: Callable[[str], tuple[str, Any]]
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[str, Any]]:
    def collect(
        context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for text in texts:
            name, value = parse(text)
            if name in values:
                raise UsageError(f"{option} gives {name} twice", hint="give each name once")
            values[name] = value
        return values

    return collect


shape_option: Decorator = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,3,224,224",
    callback=_collect("--shape", parse_shape_option),
    help="Fix the shape of an input that the model leaves open, or give a dimension a range of "
    "sizes: ids=1x(1..512). May be repeated.",
)
"""An option that adds `shapes: dict[str, Shape]`."""

constant_option: Decorator = click.option(
    "--constant",
    "constants",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_collect("--constant", parse_constant_option),
    help="Give an input a fixed value: axes=1,2 or x=file.npy. May be repeated.",
)
"""An option that adds `constants: dict[str, Array]`."""


def parse_state_option(text: str) -> tuple[str, str]:
    """Parse `hn=h`: the output `hn` becomes the input `h` of the next call."""
    output, separator, name = text.partition("=")
    if not separator or not output or not name:
        raise UsageError(
            f"--state {text} is not an output and an input", hint="write --state output=input"
        )
    return output, name


state_option: Decorator = click.option(
    "--state",
    "state",
    multiple=True,
    metavar="OUTPUT=INPUT",
    callback=_collect("--state", parse_state_option),
    help="Carry an output to an input of the next call. May be repeated.",
)
"""An option that adds `state: dict[str, str]`."""

model_argument: Decorator = click.argument("model", type=MODEL_FILE, required=False)
"""An argument that adds `model: Path | None`; None is the project file's model."""

bundle_argument: Decorator = click.argument("bundle", type=BUNDLE_PATH)
"""An argument that adds `bundle: Path`."""

plain_http_option: Decorator = click.option(
    "--plain-http", is_flag=True, help="Reach a registry that has no TLS. No login is sent."
)
"""An option that adds `plain_http: bool`."""


def grouped(name: str, make: Callable[..., object], *options: Decorator) -> Decorator:
    """Join options: a command gets one argument `name`, which `make` makes of their values.

    An option may itself be a group: `make` gets its one argument.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        joined: Any = lambda **values: make(**values)  # noqa: E731 -- click adds its options to it
        for option in reversed(options):
            joined = option(joined)
        own = [parameter.name for parameter in joined.__click_params__]

        def command(*args: Any, **given: Any) -> Any:
            values = {key: given.pop(key) for key in own}
            return function(*args, **{name: joined(**values)}, **given)

        before = getattr(function, "__click_params__", [])
        wrapped: Any = update_wrapper(command, function)
        wrapped.__click_params__ = [*before, *joined.__click_params__]
        return cast(Callable[..., Any], wrapped)

    return decorate


binding_options = grouped(
    "binding", dict, shape_option, constant_option, reshape_option, ends_option, state_option
)
"""Options that add `binding: BindingKeywords`."""

store_option: Decorator = click.option(
    "--store",
    "url",
    metavar="URL",
    help="sqlite:///FILE or postgresql://USER@HOST/DATABASE.  "
    "[default: $EDGEKIT_STORE, the project's, or a file in your home]",
)
"""An option that adds `url: str | None`."""
