"""The pytest plugin: a bundle built once a session, its device, and assertions about its numbers.

pytest loads this module wherever edgekit is installed, so it imports nothing else before a test
asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from edgekit.api.device import DeviceHandle
    from edgekit.api.workspace import Workspace
    from edgekit.bundle.folder import Bundle
    from edgekit.profiles.board import Board
    from edgekit.store.comparing import Comparison
    from edgekit.testing.assertions import Against
    from edgekit.verbs.bench_report import BenchReport
    from edgekit.verbs.verify import VerifyReport

SETTINGS = {
    "model": "the model file of edgekit_bundle",
    "board": "the board of edgekit_board",
    "device": "the device of edgekit_device",
    "offload": "the libraries that run parts of the model, as for edgekit build",
}
"""What the marker, an option and the configuration can say, and the option's help."""
PROPERTY = "edgekit"
"""The name of the property of a test that holds a comparison in words."""
_MARKER = (
    "edgekit(model, board, device, offload, twin, ...): what edgekit's fixtures give to this test"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("edgekit")
    for name, meaning in SETTINGS.items():
        group.addoption(f"--edgekit-{name}", metavar=name.upper(), help=meaning)
        parser.addini(f"edgekit_{name}", meaning)
    twin = "use the board's emulated twin"
    group.addoption("--edgekit-twin", action="store_true", default=None, help=twin)
    parser.addini("edgekit_twin", twin, "bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print each comparison of speed, also of tests that passed."""
    lines = [
        f"{report.nodeid}: {value}"
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        for name, value in getattr(report, "user_properties", ())
        if name == PROPERTY
    ]
    if lines:
        terminalreporter.section("edgekit")
        for line in lines:
            terminalreporter.write_line(line)


@dataclass(frozen=True)
class Chosen:
    """What one test uses."""

    workspace: Workspace
    model: Path | None
    board: Board
    device: str | None
    twin: bool
    how: dict[str, Any]
    """The other keyword arguments of the build."""

    @property
    def key(self) -> str:
        """What two tests with one bundle have in common."""
        return repr((self.model, self.board.name, self.twin, sorted(self.how.items())))

    def build(self, folder: Path) -> Bundle:
        named = self.model or self.workspace.data.model(None, {}, {}).path
        out = folder / f"{named.stem}-{self.board.name}"
        return self.workspace.build(self.model, out, board=self.board, twin=self.twin, **self.how)


@pytest.fixture(scope="session")
def edgekit_workspace(pytestconfig: pytest.Config) -> Workspace:
    """Return the workspace of pytest's root folder."""
    from edgekit.api.workspace import Workspace

    return Workspace(pytestconfig.rootpath)


@pytest.fixture(scope="session")
def _edgekit_bundles() -> dict[str, Bundle]:
    return {}


@pytest.fixture
def _edgekit_chosen(request: pytest.FixtureRequest, edgekit_workspace: Workspace) -> Chosen:
    with _brief_errors():
        return _choose(request.node, edgekit_workspace)


@pytest.fixture
def edgekit_board(_edgekit_chosen: Chosen) -> Board:
    """Return the board: the marker's, the option's, the configuration's or the project's, or this
    machine."""
    return _edgekit_chosen.board


@pytest.fixture
def edgekit_bundle(
    _edgekit_chosen: Chosen,
    _edgekit_bundles: dict[str, Bundle],
    tmp_path_factory: pytest.TempPathFactory,
) -> Bundle:
    """Return the model's bundle for the board, built once a session."""
    key = _edgekit_chosen.key
    if key not in _edgekit_bundles:
        with _brief_errors():
            _edgekit_bundles[key] = _edgekit_chosen.build(tmp_path_factory.mktemp("edgekit"))
    return _edgekit_bundles[key]


@pytest.fixture
def edgekit_device(_edgekit_chosen: Chosen) -> DeviceHandle:
    """Return the device: the named one, the twin, or the first free one of the board.

    `with edgekit_device.open(edgekit_bundle) as session:` holds it.
    """
    from edgekit.project.file import LOCAL

    chosen, workspace = _edgekit_chosen, _edgekit_chosen.workspace
    with _brief_errors():
        if chosen.twin:
            return workspace.twin(chosen.board, name=chosen.device)
        on_host = LOCAL if chosen.board.name == LOCAL else None
        return workspace.device(chosen.device or on_host, board=chosen.board)


@pytest.fixture
def assert_verified() -> Callable[[VerifyReport], None]:
    """Return the assertion that a report of `verify` found the oracle's numbers."""
    from edgekit.testing.assertions import assert_verified

    return assert_verified


@pytest.fixture
def assert_fast_enough(
    request: pytest.FixtureRequest, edgekit_workspace: Workspace
) -> Callable[..., Comparison | None]:
    """Return the assertion that a report of `bench` is no slower than earlier runs in the store."""
    from edgekit.testing.assertions import assert_fast_enough

    def hear(words: str) -> None:
        request.node.user_properties.append((PROPERTY, words))

    def assertion(
        report: BenchReport, *, within: float = 0.05, against: Against = "best"
    ) -> Comparison | None:
        __tracebackhide__ = True
        store = edgekit_workspace.data.store
        return assert_fast_enough(report, within=within, against=against, store=store, hear=hear)

    return assertion


@contextmanager
def _brief_errors() -> Iterator[None]:
    """Fail with the sentence and the hint of an error, without a traceback."""
    from edgekit.base.errors import EdgekitError
    from edgekit.testing.assertions import in_words

    try:
        yield
    except EdgekitError as error:
        raise pytest.fail.Exception(in_words(error), pytrace=False) from None


def _choose(node: pytest.Item, workspace: Workspace) -> Chosen:
    from edgekit.api.keywords import BuildKeywords, backend_names_in
    from edgekit.base.errors import UsageError
    from edgekit.project.file import LOCAL

    marked: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers("edgekit"))):  # the closest one last
        marked.update(marker.kwargs)
        known = (*SETTINGS, "twin", *BuildKeywords.__annotations__)
        if marker.args or not marked.keys() <= set(known):
            wrong = repr(marker.args[0]) if marker.args else min(marked.keys() - set(known))
            raise UsageError(
                f"the marker edgekit does not take {wrong}",
                hint="it takes model, board, device, offload and twin as keywords, and those of "
                "Workspace.build",
            )
    config = node.config

    def said(name: str) -> Any:
        if name in marked:
            return marked[name]
        option = config.getoption(f"--edgekit-{name}")
        if option is None:
            return config.getini(f"edgekit_{name}") or None
        return config.invocation_params.dir / option if name == "model" else option

    model, device, project = said("model"), said("device"), workspace.data.project
    twin = bool(said("twin"))
    board = said("board") or (project.board if project is not None else None)
    if board is None:
        board = LOCAL if device is None or twin else workspace.device(device).board
    how = {name: value for name, value in marked.items() if name in BuildKeywords.__annotations__}
    how = {**how, "offload": backend_names_in(said("offload"))}
    how.pop("board", None)
    return Chosen(
        workspace,
        None if model is None else workspace.data.path(model),
        workspace.data.board(board),
        device,
        twin,
        how,
    )
