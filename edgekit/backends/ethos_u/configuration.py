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

    output_depth: int
    """Output channels that it computes at once."""
    input_depth: int = 8


ACCELERATORS = {
    "ethos-u55-32": Accelerator(4),
    "ethos-u55-64": Accelerator(8),
    "ethos-u55-128": Accelerator(8),
    "ethos-u55-256": Accelerator(8),
    "ethos-u65-256": Accelerator(8),
}
"""The NPUs with one core and registers of the Ethos-U55, which the twin interprets."""
WITHOUT_TWIN = (
    "ethos-u65-512",
    *(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048)),
)


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
    known = (*ACCELERATORS, *WITHOUT_TWIN)
    if accelerator not in known:
        raise ProjectError(
            f"[offload.ethos-u] accelerator is {accelerator!r}, which Vela does not know",
            hint=f"it is one of {', '.join(known)}",
        )
    if twin and accelerator not in ACCELERATORS:
        raise ProjectError(
            f"the twin does not interpret the commands of an {accelerator}",
            hint=f"set twin = false, or take one of {', '.join(ACCELERATORS)}",
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
