"""The token that opens the farm's page; it stays the same until the user asks for a new one."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from edgekit.base.files import replace_file, storage_errors
from edgekit.devices.keeper_client import farm_folder

_FORM = re.compile(r"[A-Za-z0-9_-]{32}\n?")
_LONGEST = 100


def token_file() -> Path:
    return farm_folder() / "web-token"


def web_token(*, new: bool = False) -> str:
    """Return the token. Make one if it is missing or others could have read it, or if `new`."""
    path = token_file()
    token = None if new else _read(path)
    if token is not None:
        return token
    token = secrets.token_urlsafe(24)
    with storage_errors("keep the page's token", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as stream:
            os.fchmod(stream.fileno(), 0o600)
            stream.write(f"{token}\n".encode())
    return token


def _read(path: Path) -> str | None:
    with storage_errors("read the page's token", path):
        try:
            with path.open("rb") as stream:
                is_ours = not os.fstat(stream.fileno()).st_mode & 0o077
                text = stream.read(_LONGEST).decode("ascii", "replace")
        except FileNotFoundError:
            return None
    return text.strip() if is_ours and _FORM.fullmatch(text) else None
