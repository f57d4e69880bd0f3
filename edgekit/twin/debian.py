"""Debian packages for another architecture, fetched by the host's apt and checked with its keys.

apt gets a separate state: nothing on the host changes, and root is not needed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgekit.base.errors import BuildError, MissingToolError
from edgekit.base.events import SILENT, Events, Stage
from edgekit.base.files import bytes_in, write_atomically
from edgekit.base.wording import counted, duration, size
from edgekit.twin.recipe import Recipe
from edgekit.twin.tools import BuildTools

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_DEBIANS_OWN = {
    "debian": "http://ftp.debian.org/debian",
    "debian-security": "http://security.debian.org/debian-security",
}
_LISTS_SECONDS = 300
_DOWNLOAD_SECONDS = 1800
_URI = re.compile(r"'[^']+' (\S+) ([0-9]+)(?: .*)?")
_CARRIED = re.compile(
    r"Acquire::(https?::[^ ]+|Check-Valid-Until|Check-Date|ForceIPv[46]) ", re.IGNORECASE
)
"""The host's apt settings to keep: how mirrors are reached, never whether they are trusted."""


_SYNCHRONISING = re.compile(
    r"Mirror sync in progress|File has unexpected size|Hash Sum mismatch", re.IGNORECASE
)
"""What apt says of a mirror whose lists and files don't fit each other yet."""
_PAUSES_S = (10.0, 30.0, 60.0)
"""The times after which a mirror that is being synchronised is asked again."""


@dataclass(frozen=True)
class Source:
    """A suite of a mirror."""

    uri: str
    suite: str

    def line(self) -> str:
        """Return the line for sources.list."""
        return f"deb [signed-by={_KEYRING}] {self.uri} {self.suite} main\n"


@dataclass(frozen=True)
class Package:
    """A package that apt would fetch."""

    name: str
    file: str
    size: int


@dataclass(frozen=True)
class Fetched:
    """Downloaded packages, and the kernel's."""

    packages: tuple[Path, ...]
    kernel: Path


def suites(release: str) -> tuple[str, str, str]:
    """List the suites of a release."""
    return release, f"{release}-updates", f"{release}-security"


def host_sources(targets: str, release: str) -> tuple[Source, ...]:
    """Find the host's mirrors in the output of `apt-get indextargets`.

    Prefer mirrors of this release, then those of the host's own, then Debian's (on Ubuntu).
    """
    wanted = suites(release)
    found = []
    mirrors = dict(_DEBIANS_OWN)
    for line in targets.splitlines():
        suite, _, rest = line.partition("|")
        component, _, uri = rest.partition("|")
        kind = PurePosixPath(uri).name
        if component != "main" or kind not in mirrors:
            continue
        if suite in wanted:
            found.append(Source(uri, suite))
        # Repositories other than Debian's have no such suites.
        if suite.endswith("-security" if kind == "debian-security" else "-updates"):
            mirrors[kind] = uri
    if not any(source.suite == release for source in found):
        return tuple(
            Source(mirrors["debian-security" if suite.endswith("-security") else "debian"], suite)
            for suite in wanted
        )
    return tuple(dict.fromkeys(found))


def parse_uris(output: str) -> tuple[Package, ...]:
    """Parse `apt-get --print-uris`: 'http://…' name_version_arch.deb 1234 SHA256:…"""
    packages = []
    for line in output.splitlines():
        match = _URI.fullmatch(line.strip())
        if match and match[1].endswith(".deb"):
            packages.append(Package(match[1].partition("_")[0], match[1], int(match[2])))
    return tuple(packages)


def fetch(recipe: Recipe, work: Path, tools: BuildTools, events: Events) -> Fetched:
    """Download everything that a recipe names into `work`; apt checks it."""
    apt = _PrivateApt(work / "apt", recipe.architecture, tools, events)
    with events.stage("fetch package lists") as stage:
        apt.update(recipe.release)
        wanted = [
            package
            for package in apt.would_install(recipe.packages)
            if package.name not in recipe.left_out
        ]
        kernel = _kernel_of(recipe.kernel, apt.would_install((recipe.kernel,)))
        stage.result = f"Debian {recipe.release}, {counted(len(wanted), 'package')}"
    everything = [*wanted, kernel]
    total = sum(package.size for package in everything)
    debs = work / "debs"
    debs.mkdir()
    with events.stage("download packages", total) as stage:
        apt.download([package.name for package in everything], debs, stage)
        stage.result = size(total)
    found = {path.name.partition("_")[0]: path for path in debs.glob("*.deb")}
    return Fetched(tuple(found[package.name] for package in wanted), found[kernel.name])


def patiently(
    fetch: Callable[[], None], events: Events = SILENT, pauses_s: Sequence[float] = _PAUSES_S
) -> None:
    """Fetch from a mirror; while it is being synchronised, wait and fetch again."""
    for pause_s in pauses_s:
        try:
            return fetch()
        except BuildError as error:
            if not _is_synchronising(error):
                raise
        events.note(f"the mirror is being synchronised: next try in {duration(pause_s)}")
        time.sleep(pause_s)
    try:
        fetch()
    except BuildError as error:
        if not _is_synchronising(error):
            raise
        raise BuildError(
            error.message,
            hint="the mirror is being synchronised with Debian's: try again in half an hour, or "
            "name another mirror in the host's sources of apt",
            details=error.details,
        ) from error


def _is_synchronising(error: BuildError) -> bool:
    """Return whether apt said so after its last start, which the log has as a line with $."""
    start = max((i for i, line in enumerate(error.details) if line.startswith("$ ")), default=0)
    return any(_SYNCHRONISING.search(line) for line in error.details[start:])


def download_package(release: str, file: str, work: Path, tools: BuildTools, stage: Stage) -> Path:
    """Download NAME_VERSION_ARCHITECTURE.deb without its dependencies; apt checks it."""
    name, _, rest = file.partition("_")
    architecture = rest.removesuffix(".deb").rpartition("_")[2]
    apt = _PrivateApt(work / "apt", architecture, tools)
    apt.update(release)
    debs = work / "debs"
    debs.mkdir()
    stage.expect(apt.size_of(name))
    apt.download([name], debs, stage)
    return next(debs.glob("*.deb"))


def _kernel_of(meta: str, packages: Sequence[Package]) -> Package:
    for package in packages:
        if package.name != meta and re.match(r"linux-image-[0-9]", package.name):
            return package
    raise BuildError(
        f"Debian's {meta} names no kernel",
        hint="check that the host's mirror is complete, or use another one",
    )


class _PrivateApt:
    """apt with a separate state, configuration and (empty) package database."""

    def __init__(
        self, root: Path, architecture: str, tools: BuildTools, events: Events = SILENT
    ) -> None:
        if not _KEYRING.is_file():
            raise MissingToolError(
                f"checking Debian's packages needs its signing keys: {_KEYRING} is missing",
                hint="sudo apt-get install debian-archive-keyring",
            )
        self._root = root
        self._events = events
        self._architecture = architecture
        self._host_tools = tools
        self._config = root / "apt.conf"
        # Only this variable is read before the host's settings, and so can leave them out.
        self._tools = tools.with_environment({"APT_CONFIG": str(self._config)})
        for folder in ("lists/partial", "archives/partial", "preferences.d", "sources.d", "log"):
            (root / folder).mkdir(parents=True)
        (root / "status").touch()

    def update(self, release: str) -> None:
        doing = "read the host's apt settings"
        ask = self._host_tools.answer
        dump = ask(["apt-config", "dump"], doing=doing, folder=self._root, limit_s=60)
        form = "$(RELEASE)|$(COMPONENT)|$(REPO_URI)"
        command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
        targets = ask(command, doing=doing, folder=self._root, limit_s=60)
        carried = [line for line in dump.splitlines() if _CARRIED.match(line)]
        write_atomically(self._config, "\n".join([*carried, *self._settings(), ""]))
        sources = host_sources(targets, release)

        def fetch_lists() -> None:
            try:
                self._fetch_lists(release, sources)
            except BuildError:
                # The release itself stays as it was published.
                published = [source for source in sources if source.suite == release]
                self._fetch_lists(release, published)

        patiently(fetch_lists, self._events)

    def _fetch_lists(self, release: str, sources: Sequence[Source]) -> None:
        lines = "".join(source.line() for source in sources)
        write_atomically(self._root / "sources.list", lines)
        self._tools.run(
            ["apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update"],
            doing=f"fetch the package lists of Debian {release}",
            folder=self._root,
            limit_s=_LISTS_SECONDS,
        )

    def would_install(self, names: Sequence[str]) -> tuple[Package, ...]:
        output = self._tools.answer(
            ["apt-get", "-q=2", "--yes", "--print-uris", "install", *names],
            doing="list the packages that are needed",
            folder=self._root,
            limit_s=60,
        )
        return parse_uris(output)

    def download(self, names: Sequence[str], folder: Path, stage: Stage) -> None:
        doing = "download the packages"
        command = ["apt-get", "-q=2", "download", *names]
        with stage.watching(lambda: bytes_in(folder)):
            patiently(
                lambda: self._tools.run(
                    command, doing=doing, folder=folder, limit_s=_DOWNLOAD_SECONDS
                ),
                self._events,
            )

    def size_of(self, name: str) -> int | None:
        """Return the bytes of a package without its dependencies; None if apt does not know."""
        output = self._tools.answer(
            ["apt-get", "-q=2", "--print-uris", "download", name],
            doing=f"look up {name}",
            folder=self._root,
            limit_s=60,
        )
        return sum(package.size for package in parse_uris(output)) or None

    def _settings(self) -> list[str]:
        values = {
            "Dir::State": self._root,
            "Dir::State::status": self._root / "status",
            "Dir::State::lists": self._root / "lists",
            "Dir::Cache": self._root,
            "Dir::Cache::archives": self._root / "archives",
            "Dir::Etc": self._root,
            "Dir::Etc::parts": "/dev/null",
            "Dir::Etc::sourcelist": self._root / "sources.list",
            "Dir::Etc::sourceparts": self._root / "sources.d",
            "Dir::Etc::preferencesparts": self._root / "preferences.d",
            "Dir::Log": self._root / "log",
            "APT::Architecture": self._architecture,
            "APT::Architectures": self._architecture,
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
        }
        return [f'{key} "{value}";' for key, value in values.items()]
