"""Finds a file on the package index of pip's configuration: the simple API, as JSON (PEP 691) or
HTML (PEP 503).

pip itself does not download it: for a source distribution it would run the package's build to learn
its name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from edgekit.base.children import TimeoutExpired, has_pip, module_command, run, spoken_module
from edgekit.base.decode import decode_json
from edgekit.base.errors import BuildError, MissingToolError
from edgekit.cross.sources.web import Web, WebError

_ASKING_SECONDS = 60
_LARGEST_PAGE = 64 << 20
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
_DEFAULT_INDEX = re.compile(r"--index-url.*?\(default:?\s+(\S+?)\)", re.DOTALL)


@dataclass(frozen=True)
class PipConfig:
    """The places where pip looks, and the settings of its connections."""

    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    web: Web


def pip_config() -> PipConfig:
    """Read pip's configuration files and environment."""
    if not has_pip():
        raise MissingToolError(
            "fetching a library's source needs pip's configuration, and this environment lacks pip",
            hint=f"{spoken_module('ensurepip')}, or name folders with the files in EDGEKIT_SOURCES",
        )
    settings = parse_pip_settings(_pip("config", "list"))
    main = settings.get("index-url")
    indexes = [] if _is_true(settings.get("no-index", "")) else [main or _default_index()]
    if indexes:
        indexes += settings.get("extra-index-url", "").split()
    return PipConfig(
        tuple(indexes),
        tuple(settings.get("find-links", "").split()),
        Web(certificates=settings.get("cert"), proxy=settings.get("proxy")),
    )


def parse_pip_settings(listed: str) -> dict[str, str]:
    """Parse the output of `pip config list`: global.index-url='https://…'.

    Settings for downloads win over global ones, the environment over both.
    """
    order = {"global": 0, "download": 1, ":env:": 2}
    found: dict[str, tuple[int, str]] = {}
    for line in listed.splitlines():
        name, equals, value = line.partition("=")
        section, _, key = name.strip().rpartition(".")
        if not equals or section not in order:
            continue
        try:
            text = str(ast.literal_eval(value.strip()))
        except (ValueError, SyntaxError):
            continue
        if key not in found or found[key][0] <= order[section]:
            found[key] = (order[section], text)
    return {key: text for key, (_, text) in found.items()}


def find_file(config: PipConfig, project: str, file: str) -> Iterator[str]:
    """Find addresses of a project's file: in pip's find-links folders, then on each index."""
    for place in config.find_links:
        folder = local_folder(place)
        if folder is not None and (folder / file).is_file():
            yield (folder / file).absolute().as_uri()
    troubles: list[str] = []
    found = False
    for index in config.indexes:
        base = f"{index.rstrip('/')}/{project}/"
        try:
            links = dict(read_links(base, *_page(config.web, base)))
        except WebError as error:
            troubles.append(str(error))
            continue
        if file in links:
            found = True
            yield _with_credentials_of(index, links[file])
    if not found:
        raise BuildError(
            f"the package index has no {file}"
            if not troubles or len(troubles) < len(config.indexes)
            else f"no package index answers for {file}: {troubles[0]}",
            hint="`pip config list` shows the index; or name a folder with the file in"
            " EDGEKIT_SOURCES",
            details=tuple(troubles),
        )


@dataclass(frozen=True)
class _File:
    filename: str
    url: str


@dataclass(frozen=True)
class _Page:
    """A project's page as JSON, of which edgekit reads this."""

    files: tuple[_File, ...]


def read_links(base: str, content_type: str, page: bytes) -> Iterator[tuple[str, str]]:
    """Read the file names and addresses on a project's page."""
    if "json" in content_type:
        try:
            files = decode_json(_Page, page, ignore_unknown=True).files
            yield from ((file.filename, urljoin(base, file.url)) for file in files)
        except ValueError as error:
            raise WebError(f"{_host(base)} answered with JSON that is no project's page") from error
        return
    parser = _Anchors()
    parser.feed(page.decode("utf-8", errors="replace"))
    for address in parser.found:
        whole = urldefrag(urljoin(base, address))[0]
        yield unquote(urlsplit(whole).path.rpartition("/")[2]), whole


def local_folder(place: str) -> Path | None:
    """Return the folder of a path or a file:// address; None for any other address."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(place).expanduser() if parts.scheme == "" else None


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _page(web: Web, address: str) -> tuple[str, bytes]:
    if folder := local_folder(address):
        try:
            return "text/html", (folder / "index.html").read_bytes()
        except OSError as error:
            raise WebError(f"{folder} has no such project") from error
    return web.read(address, accept=_ACCEPT, limit=_LARGEST_PAGE)


def _default_index() -> str:
    """Return pip's built-in index, which its help names."""
    match = _DEFAULT_INDEX.search(_pip("download", "--help"))
    if match is None:
        raise BuildError(
            "pip does not name the package index that it uses",
            hint="set one: pip config set global.index-url, or PIP_INDEX_URL",
        )
    return match[1]


def _pip(*arguments: str) -> str:
    try:
        done = run(
            module_command("pip", "--disable-pip-version-check", *arguments),
            limit_s=_ASKING_SECONDS,
        )
        trouble = done.last_words if done.status else ""
    except (OSError, TimeoutExpired) as error:
        trouble = str(error)
    if trouble:
        raise MissingToolError(
            f"pip does not run: {trouble}",
            hint=f"{spoken_module('ensurepip')} --upgrade repairs it",
        )
    return done.output


def _with_credentials_of(index: str, address: str) -> str:
    """Add the index's credentials to an address on the index's host."""
    ours, theirs = urlsplit(index), urlsplit(address)
    same = (ours.scheme, ours.hostname, ours.port) == (theirs.scheme, theirs.hostname, theirs.port)
    return theirs._replace(netloc=ours.netloc).geturl() if same else address


def _is_true(text: str) -> bool:
    return text.lower() in ("1", "true", "yes", "on", "y", "t")


def _host(address: str) -> str:
    return urlsplit(address).hostname or address
