"""A collector of boards' reports, as a process of the command line's."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.error import HTTPError

HUNG_UP = 0
"""The status where the collector ended the connection."""


@contextmanager
def running_collector(*options: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a collector on a free port; yield the URL that takes reports."""
    words = [sys.executable, "-m", "edgekit", "rollout", "collect", "--port", "0", "--json"]
    with subprocess.Popen(
        [*words, *options], stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            yield _url(process)
        finally:
            process.terminate()
            process.wait(60)


def _url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        try:
            return str(json.loads(text)["url"])
        except ValueError:
            continue
    raise AssertionError(f"the collector ended: {text}")


def post(url: str, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Send a report; return the status and what is said about it."""
    given = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, data=body, headers=given)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error, suppress(OSError):
            return error.code, error.read().decode()
        return HUNG_UP, ""
    except OSError:
        return HUNG_UP, ""
