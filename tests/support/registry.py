"""A real OCI registry of the tests' own: Debian's docker-registry on a loopback port."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from support.needs import require
from support.ports import free_port

_SECONDS = 60


@dataclass
class RegistryServer:
    folder: Path
    port: int
    settings: Mapping[str, Any]
    scheme: str = "http"
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        file = self.folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    def address(self, tag: str = "net:1") -> str:
        return f"oci://{self.host}/{tag}"

    def start(self) -> None:
        program = shutil.which("docker-registry")
        assert program is not None
        config = {
            "version": "0.1",
            "storage": {
                "filesystem": {"rootdirectory": str(self.folder / "data")},
                "delete": {"enabled": True},
            },
            "http": {
                "addr": self.host,
                "secret": "of every start",
                **self.settings.get("http", {}),
            },
            **{key: value for key, value in self.settings.items() if key != "http"},
        }
        (self.folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
        began = len(self.log)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, "serve", str(self.folder / "config.yml")], stdout=log, stderr=log
            )
        end = time.monotonic() + _SECONDS
        while True:
            assert self._process.poll() is None, self.log
            if "listening on" in self.log[began:]:
                return
            assert time.monotonic() < end, self.log
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def writes(self) -> list[str]:
        """The requests since the start that changed something, as METHOD PATH."""
        words = ('"POST /', '"PUT /', '"PATCH /')
        return [line for line in self.log.splitlines() if any(word in line for word in words)]

    def blob(self, sha256: str) -> Path:
        """The file that holds a blob's content."""
        blobs = self.folder / "data/docker/registry/v2/blobs/sha256"
        return blobs / sha256[:2] / sha256 / "data"

    def document(self, tag: str = "net:1") -> bytes:
        name, _, version = tag.rpartition(":")
        request = urllib.request.Request(
            f"{self.scheme}://{self.host}/v2/{name}/manifests/{version}",
            headers={"Accept": "application/vnd.oci.image.manifest.v1+json"},
        )
        with urllib.request.urlopen(request) as answer:
            data = answer.read()
            assert isinstance(data, bytes)
            return data

    def put_document(self, data: bytes, tag: str = "net:1") -> None:
        """Move a tag, as a person who may write to the registry can."""
        name, _, version = tag.rpartition(":")
        request = urllib.request.Request(
            f"{self.scheme}://{self.host}/v2/{name}/manifests/{version}",
            data=data,
            headers={"Content-Type": "application/vnd.oci.image.manifest.v1+json"},
            method="PUT",
        )
        try:
            urllib.request.urlopen(request).close()
        except HTTPError as error:
            raise AssertionError(error.read()) from error


@contextmanager
def running_registry(folder: Path, **settings: Any) -> Iterator[RegistryServer]:
    require("docker-registry")
    folder.mkdir(parents=True)
    server = RegistryServer(folder, free_port(), settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()
