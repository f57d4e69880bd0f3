"""Reads edgekit.toml: a project's model, default board and devices.

The command line overrides the file. The file's shapes, constants and preprocessing belong to its
model and don't apply to another model on the command line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.database_url import read_database_url
from edgekit.base.errors import InputError, ProjectError, UsageError
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.options import option
from edgekit.base.own_backends import own_backends
from edgekit.base.paths import PROJECT_FILE, beside, nearest_project_file, place_of
from edgekit.base.quoting import one_line, toml_string
from edgekit.base.shapes import EXPECTED, Shape, ShapeError, read_shape
from edgekit.base.toml_source import TomlError, read_toml
from edgekit.base.trust import effects_of, require_trust
from edgekit.base.wording import nearest
from edgekit.models.ends import NO_ENDS, Ends
from edgekit.models.model import (
    AS_IN_THE_FILE,
    MODEL_SUFFIXES,
    Adaptation,
    EndType,
    ModelSource,
    open_model,
    scan_model,
)
from edgekit.profiles.offload import ProjectOffload, parse_project_offload
from edgekit.profiles.reader import (
    NAME_EXPECTED,
    NAME_PATTERN,
    Problem,
    TableReader,
    find_profile,
    in_words,
    profile_names,
    show,
    syntax_problem,
)
from edgekit.project.devices import DeviceEntry, parse_device
from edgekit.project.postprocess import proposed_sections, read_postprocess
from edgekit.store.address import named_url, with_files_beside

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.models.preprocess import Preprocess

SCHEMA_VERSION = 1
DEFAULT_KEEP = 3
MOST_KEPT = 100
LOCAL = "local"
"""The name of this host, as a board and as a device."""

_CONSTANT_EXPECTED = "numbers, true or false, lists of them, or the name of a .npy file"


@dataclass(frozen=True)
class Project:
    """The content of edgekit.toml. Paths are absolute."""

    path: Path
    model: Path | None = None
    board: str | None = None
    keep: int | None = None
    """The number of versions of a model that stay on a device."""
    store: str | None = None
    """The URL of the store for measurements."""
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    ends: Ends = NO_ENDS
    """What stands before and behind the model."""
    adaptation: Adaptation = AS_IN_THE_FILE
    devices: Mapping[str, DeviceEntry] = field(default_factory=dict)
    offload: ProjectOffload = field(default_factory=ProjectOffload)
    library_paths: Mapping[str, Path] = field(default_factory=dict)
    """The folder or archive with a backend's library, by the backend's name."""

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self.path.parent


def find_project(start: Path, *, only_to_show: bool = False) -> Project | None:
    """Read the nearest edgekit.toml from `start` up to the root of the repository or file system.

    UntrustedProjectError if its user has not agreed to what it makes edgekit run or send.
    `only_to_show` is for callers that run and send nothing of it.
    """
    file = nearest_project_file(start)
    return None if file is None else read_project(file, only_to_show=only_to_show)


def read_project(path: Path, *, only_to_show: bool = False) -> Project:
    """Read a project file as `find_project` does; ProjectError with every problem."""
    try:
        source = read_toml(path)
    except OSError as error:
        raise ProjectError(
            f"{path} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
    except TomlError as error:
        raise _project_error(path, [syntax_problem(path, error)]) from error
    problems: list[Problem] = []
    reader = TableReader(source, source.table, (), problems)
    project = _parse(reader, place_of(path))
    reader.finish()
    if problems:
        _note_missing(project, reader, path.absolute().parent)
        raise _project_error(path, problems)
    if not only_to_show:
        require_trust(path, effects_of("project", source.table), path.absolute().parent)
    return project


def check_references(project: Project, folder: Path) -> None:
    """Raise ProjectError with everything that a project file names and that does not exist."""
    problems: list[Problem] = []
    source = read_toml(project.path)
    _note_missing(project, TableReader(source, source.table, (), problems), folder)
    if problems:
        raise _project_error(project.path, problems)


def _note_missing(project: Project, reader: TableReader, folder: Path) -> None:
    boards = profile_names("boards", folder)
    if project.model is not None and not project.model.exists():
        reader.complain("model", f"no file {project.model}", "a model file")
    for table, board in (
        (reader, project.board),
        *(
            (reader.table("devices").table(name), entry.board)
            for name, entry in project.devices.items()
        ),
    ):
        if board and board not in boards:
            expected = "a board of `edgekit boards`"
            table.complain("board", f"the unknown {board}", expected, nearest(board, boards))


def choose_model(
    project: Project | None,
    model: Path | None,
    shapes: Mapping[str, Shape],
    constants: Mapping[str, Array],
    adaptation: Adaptation = AS_IN_THE_FILE,
) -> ModelSource:
    """Return a command's model: its own argument, or the project's."""
    if model is None:
        if project is None:
            raise UsageError(
                f"no model is given, and there is no {PROJECT_FILE} here or in a folder above",
                hint="name the model file, or write a project file with `edgekit init MODEL`",
            )
        if project.model is None:
            raise UsageError(
                f"no model is given, and {project.path} names none",
                hint='name the model file, or add model = "FILE" to the project file',
            )
        model = project.model
    ends = NO_ENDS
    if project is not None and _is_project_model(project, model):
        given = {*shapes, *constants}
        own = {n: shape for n, shape in project.shapes.items() if n not in given}
        bound = {n: value for n, value in project.constants.items() if n not in given}
        shapes, constants = {**own, **shapes}, {**bound, **constants}
        ends = project.ends
        if replace(adaptation, state=()) == AS_IN_THE_FILE:
            adaptation = replace(project.adaptation, state=adaptation.state)
        if not adaptation.state:
            adaptation = replace(adaptation, state=project.adaptation.state)
    return open_model(model, shapes, constants, ends, adaptation)


def choose_board(project: Project | None) -> str:
    """Return the project's board."""
    if project is not None and project.board is not None:
        return project.board
    raise UsageError(
        "no board is given",
        hint=f"add {option('board', 'NAME')} (local is this machine; `edgekit boards` lists all), "
        f'or board = "NAME" to {PROJECT_FILE}',
    )


def choose_keep(project: Project | None, keep: int | None) -> int:
    """Return how many versions of a model stay on a device."""
    if keep is not None:
        return keep
    return project.keep if project is not None and project.keep is not None else DEFAULT_KEEP


def choose_store(project: Project | None, url: str | None = None) -> str | None:
    """Return a command's store; None is the user's own file. The environment goes before the
    project file: only the environment may hold a password."""
    return url or named_url() or (project.store if project is not None else None)


def choose_offload(project: Project | None, source: ModelSource) -> ProjectOffload:
    """Return the project's offloading. What it forces and forbids only applies to its own model."""
    if project is None:
        return ProjectOffload()
    if _is_project_model(project, source.path):
        return project.offload
    return replace(project.offload, force=(), never=())


def _is_project_model(project: Project, model: Path) -> bool:
    return project.model is not None and project.model.resolve() == model.resolve()


def _project_error(path: Path, problems: list[Problem]) -> ProjectError:
    message, details = in_words(path, problems)
    hint = "docs/project-file.md describes every key"
    return ProjectError(message, hint=hint, details=details)


def _parse(reader: TableReader, path: Path) -> Project:
    reader.integer("schema", SCHEMA_VERSION, SCHEMA_VERSION)
    model = reader.text("model", limit=1000) if reader.has("model") else None
    board = reader.matching("board", NAME_PATTERN, NAME_EXPECTED) if reader.has("board") else None
    return Project(
        path=path,
        model=beside(path, model) if model else None,
        board=board,
        keep=reader.integer("keep", 1, MOST_KEPT) if reader.has("keep") else None,
        store=_store(reader, path),
        shapes=_shapes(reader),
        constants=_constants(reader, path),
        ends=Ends(_preprocess(reader), read_postprocess(reader, path)),
        adaptation=Adaptation(
            reshape=reader.has("reshape") and reader.value("reshape", bool, False),
            ends=reader.value("ends", EndType, "float") if reader.has("ends") else "float",
            state=_state(reader),
        ),
        devices=parse_devices(reader, path),
        offload=parse_project_offload(reader.table("offload"))
        if reader.has("offload")
        else ProjectOffload(),
        library_paths={
            name: _library_path(reader.table(facts.project_table), path)
            for name, facts in own_backends().items()
            if facts.project_table and reader.has(facts.project_table)
        },
    )


def _library_path(table: TableReader, file: Path) -> Path:
    place = table.text("path", limit=1000)
    table.finish()
    return beside(file, place)


def _store(reader: TableReader, file: Path) -> str | None:
    if not reader.has("store"):
        return None
    table = reader.table("store")
    url = table.text("url", limit=1000)
    table.finish()
    parts = read_database_url(url)
    if parts is not None and parts.holds_password:
        expected = "a URL without a password (EDGEKIT_STORE or ~/.pgpass may hold it)"
        table.complain("url", "one with a password", expected)
    return with_files_beside(file, url)


def _entries(reader: TableReader, key: str) -> Iterator[tuple[TableReader, str, object]]:
    """Read each entry of a table whose keys the user chose."""
    if reader.has(key):
        table = reader.table(key)
        for name in table.names():
            yield table, name, table.raw(name)


def _shapes(reader: TableReader) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for table, name, value in _entries(reader, "shapes"):
        try:
            if not value or not isinstance(value, (list, str)):
                raise ShapeError
            shapes[name] = read_shape(value)
        except ShapeError:
            table.complain(name, show(value), EXPECTED)
    return shapes


def _state(reader: TableReader) -> tuple[tuple[str, str], ...]:
    pairs: dict[str, str] = {}
    for table, name, value in _entries(reader, "state"):
        if isinstance(value, str) and value and value not in pairs.values():
            pairs[name] = value
        else:
            table.complain(name, show(value), "an input that no other output becomes")
    return tuple(sorted(pairs.items()))


def _constants(reader: TableReader, file: Path) -> dict[str, Array]:
    constants: dict[str, Array] = {}
    for table, name, value in _entries(reader, "constants"):
        from edgekit.models.constants import numbers, read_constant

        if isinstance(value, str) and value.endswith(".npy"):
            try:
                constants[name] = read_constant(beside(file, value), name)
            except InputError as error:
                table.complain(name, error.message, "")
        elif (array := numbers(value)) is not None:
            constants[name] = array
        else:
            table.complain(name, show(value), _CONSTANT_EXPECTED)
    return constants


def _preprocess(reader: TableReader) -> dict[str, Preprocess]:
    preprocess: dict[str, Preprocess] = {}
    for table, name, value in _entries(reader, "preprocess"):
        from edgekit.models.preprocess import Preprocess

        if isinstance(value, dict):
            declared = table.value(name, Preprocess | None, None)
            if declared is not None:
                preprocess[name] = declared
        else:
            table.complain(name, show(value), f"a table [preprocess.{name}]")
    return preprocess


def parse_devices(reader: TableReader, file: Path) -> dict[str, DeviceEntry]:
    """Read the tables [devices.NAME] of a file."""
    devices: dict[str, DeviceEntry] = {}
    for table, name, value in _entries(reader, "devices"):
        if not NAME_PATTERN.fullmatch(name) or name == LOCAL:
            table.complain(name, f"the name {show(name)}", f"{NAME_EXPECTED}, other than {LOCAL}")
        elif not isinstance(value, dict):
            table.complain(name, show(value), f"a table [devices.{name}]")
        else:
            devices[name] = parse_device(table.table(name), name, file)
    return devices


def init_project(
    folder: Path, model: Path | None = None, board: str | None = None, *, force: bool = False
) -> Project:
    """Write a first edgekit.toml. Without a model, use the only model file in the folder."""
    path = folder.absolute() / PROJECT_FILE
    if path.exists() and not force:
        raise UsageError(
            f"{path} exists already", hint=f"edit it, or add {option('force')} to replace it"
        )
    find_profile("boards", board or "local", folder.absolute())
    model = model or _only_model(folder)
    open_inputs = _open_inputs(model) if model else ()
    text = _PROJECT_TEXT.format(
        model=f"model = {toml_string(_relative(model, path.parent))}"
        if model
        else '# model = "model.onnx"',
        board=toml_string(board or "local"),
        shapes="\n".join(open_inputs) or '# "input" = [1, 3, 224, 224]',
    )
    text += proposed_sections(model, path) if model else ""
    with storage_errors("write the project file", path):
        write_atomically(path, text)
    return read_project(path)


_PROJECT_TEXT = """\
# What edgekit uses where the command line says nothing. Every key: docs/project-file.md
schema = 1

# The model file, relative to this file.
{model}

# `edgekit boards` lists all boards; local is this machine.
board = {board}

# Shapes of inputs that the model leaves open.
[shapes]
{shapes}

# Inputs that are bound to values, and are inputs no more.
[constants]
# "axes" = [1, 2]
"""


def _only_model(folder: Path) -> Path | None:
    models = [
        file
        for file in folder.iterdir()
        if file.suffix.lower() in MODEL_SUFFIXES and file.is_file()
    ]
    return models[0] if len(models) == 1 else None


def _open_inputs(model: Path) -> tuple[str, ...]:
    """Return lines for the user to complete, one for each input with an open dimension."""
    scan = scan_model(open_model(model))
    lines = []
    for spec in scan.inputs:
        if spec.open_dimensions:
            extents = [extent if isinstance(extent, int) else 1 for extent in spec.shape]
            names = ", ".join(one_line(str(spec.shape[i])) for i in spec.open_dimensions)
            lines.append(f"# {toml_string(spec.name)} = {extents}  # open: {names}")
    return tuple(lines)


def _relative(model: Path, folder: Path) -> str:
    return os.path.relpath(model.resolve(), folder.resolve())
