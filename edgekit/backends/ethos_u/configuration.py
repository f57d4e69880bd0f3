"""Which NPU a board has, in Vela's words, and the Vela that is installed."""

from __future__ import annotations

from configparser import ConfigParser
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from edgekit.backends.base import Options
from edgekit.base.errors import MissingToolError, ProjectError

PACKAGE = "ethos-u-vela"
VELA_FILE = "Arm/vela.ini"
_MODULES = {"ethosu": PACKAGE, "ai_edge_litert": "ai-edge-litert", "flatbuffers": "flatbuffers"}


@dataclass(frozen=True)
class Accelerator:
    """What of an NPU's build decides the order of its weights."""

    macs: int
    """Multiply-accumulates in a cycle."""
    cores: int = 1
    """The streams that weights are stored in."""

    @property
    def output_depth(self) -> int:
        """Return the output channels that one core of an U55 or U65 computes at once."""
        return 4 if self.macs == 32 else 8


ACCELERATORS = {
    **{f"ethos-u55-{macs}": Accelerator(macs) for macs in (32, 64, 128, 256)},
    "ethos-u65-256": Accelerator(256),
    "ethos-u65-512": Accelerator(512, cores=2),
    **{
        f"ethos-u85-{macs}": Accelerator(macs, cores)
        for macs, cores in ((128, 1), (256, 1), (512, 2), (1024, 4), (2048, 4))
    },
}
"""The NPUs that Vela compiles for."""


@dataclass(frozen=True)
class Configuration:
    accelerator: str
    system: str
    """The section of Vela's file of systems: clocks and memories, which estimates follow."""
    memory_mode: str
    twin: bool
    """Whether the program gets the twin's interpreter and decoded weights."""


_DEFAULTS: Options = {
    "accelerator": "ethos-u55-128",
    "system": "Ethos_U55_High_End_Embedded",
    "memory_mode": "Shared_Sram",
    "twin": False,
}


def configuration_of(options: Options) -> Configuration:
    """Return the settings of a profile and a project, checked."""
    unknown = sorted(options.keys() - _DEFAULTS.keys())
    if unknown:
        raise ProjectError(
            f"[offload.ethos-u] has no option {unknown[0]!r}",
            hint=f"it has {', '.join(_DEFAULTS)}",
        )
    given = {**_DEFAULTS, **options}
    for name, default in _DEFAULTS.items():
        if type(given[name]) is not type(default):
            kind = "true or false" if isinstance(default, bool) else "text"
            raise ProjectError(
                f"[offload.ethos-u] {name} is {given[name]!r}", hint=f"it must be {kind}"
            )
    accelerator, twin = str(given["accelerator"]), bool(given["twin"])
    if accelerator not in ACCELERATORS:
        raise ProjectError(
            f"[offload.ethos-u] accelerator is {accelerator!r}, which Vela does not know",
            hint=f"it is one of {', '.join(ACCELERATORS)}",
        )
    return Configuration(accelerator, str(given["system"]), str(given["memory_mode"]), twin)


def check_sections(configuration: Configuration) -> None:
    """Raise ProjectError for a system or a memory mode that Vela's file does not have."""
    parser = ConfigParser()
    package = find_spec("ethosu")
    for folder in (package.submodule_search_locations or ()) if package else ():
        parser.read(Path(folder, "config_files", VELA_FILE), encoding="utf-8")
    for key, kind, name in (
        ("system", "System_Config", configuration.system),
        ("memory_mode", "Memory_Mode", configuration.memory_mode),
    ):
        known = [s.removeprefix(f"{kind}.") for s in parser.sections() if s.startswith(kind)]
        if name not in known:
            raise ProjectError(
                f"[offload.ethos-u] {key} is {name!r}, which Vela's {VELA_FILE} does not have",
                hint=f"it has {', '.join(known)}",
            )


def vela_version() -> str:
    """Return Vela's version; empty if it is not installed."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return ""


def require_vela() -> None:
    for module, package in _MODULES.items():
        if find_spec(module) is None:
            raise MissingToolError(
                f"the Python package {package} is not installed, which an Ethos-U needs",
                hint='install it: pip install "edgekit[ethos-u]"',
            )
