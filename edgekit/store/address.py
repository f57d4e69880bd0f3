"""Where the store is, by its URL, and where that waits which is not there yet. Imports no
database."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from edgekit.paths import data_dir

VARIABLE = "EDGEKIT_STORE"
OFF = "off"
"""What the variable says where nothing is to be kept."""
FILE_NAME = "measurements.db"
_SQLITE = "sqlite:///"
_URL = re.compile(
    r"(?P<scheme>[\w+]+)://(?:(?P<user>[^:/@]*)(?::(?P<password>.*?))?@)?"
    r"(?P<host>\[[^/?@]*\]|[^/:?@]*)(?::(?P<port>[^/?@]*))?(?P<database>/[^?@]*)?"
    r"(?:\?(?P<query>.*))?",
    re.DOTALL,
)
"""A store's URL. A password may hold any mark, also those that end a host: what may be part of
one is taken for part of it."""
_TOLD = ("dbname", "host", "hostaddr", "port", "service", "user")
"""Parameters that say which store it is. No other one is ever shown: it may be a secret."""
UNREADABLE = "a store whose URL can't be read"


def default_url() -> str:
    """The file of whoever runs edgekit, unless the environment names a store."""
    return os.environ.get(VARIABLE) or f"{_SQLITE}{data_dir() / FILE_NAME}"


def is_off(url: str | None = None) -> bool:
    return (url or default_url()) == OFF


def sqlite_file(url: str) -> Path | None:
    """None where it is something else."""
    if not url.startswith(_SQLITE):
        return None
    return Path(url.removeprefix(_SQLITE).partition("?")[0]).expanduser().absolute()


def name_of(url: str) -> str:
    """Name a store without any secret: the same for every spelling that can be known for one."""
    file = sqlite_file(url)
    if file is not None:
        return str(file)
    parts = _URL.fullmatch(url)
    if parts is None:
        return UNREADABLE
    user = f"{parts['user']}@" if parts["user"] else ""
    port = f":{parts['port']}" if parts["port"] else ""
    told = [f"{key}={value}" for key, value in _parameters(parts["query"]) if key in _TOLD]
    query = f"?{'&'.join(sorted(told))}" if told else ""
    scheme = parts["scheme"].partition("+")[0]
    return f"{scheme}://{user}{parts['host']}{port}{parts['database'] or ''}{query}"


def secrets_of(url: str) -> tuple[str, ...]:
    """List every part of a URL that may be a secret, as it is written and as it is meant."""
    parts = _URL.fullmatch(url)
    if parts is None or sqlite_file(url) is not None:
        return ()
    hidden = [value for key, value in _parameters(parts["query"]) if key not in _TOLD]
    written = [word for word in (parts["password"], *hidden) if word]
    return tuple(dict.fromkeys((*written, *map(unquote, written))))


def holds_password(url: str) -> bool:
    """Say whether a URL has a password in it, wherever it stands."""
    parts = _URL.fullmatch(url)
    if parts is None:
        return False
    return parts["password"] is not None or any(
        key.lower().endswith("password") for key, _ in _parameters(parts["query"])
    )


def _parameters(query: str | None) -> list[tuple[str, str]]:
    return parse_qsl(query or "", keep_blank_values=True)


def outbox_folder() -> Path:
    """Where measurements wait for their stores, a folder each: `outbox.py`. Runs that edgekit kept
    before it knew for which store lie in the folder itself."""
    return data_dir() / "outbox"


def runs_folder(url: str | None = None) -> Path:
    """Where benchmark runs for that store wait."""
    return findings_folder(url) / "runs"


def is_own(url: str | None = None) -> bool:
    """Say whether it is the store of the user's own configuration, whatever a project names."""
    return name_of(url or default_url()) == name_of(default_url())


def findings_folder(url: str | None = None) -> Path:
    """Where findings for that store wait."""
    name = hashlib.sha256(name_of(url or default_url()).encode()).hexdigest()
    return outbox_folder() / f"for-{name[:16]}"


def waiting(folder: Path) -> tuple[Path, ...]:
    """The oldest findings first."""
    return tuple(sorted(folder.glob("*.json"))) if folder.is_dir() else ()
