"""energyrunner/firmware.elf: a program for the board that EEMBC's EnergyRunner asks."""

from __future__ import annotations

from pathlib import Path

from edgekit.aot.firmware.build import FIRMWARE_NAME, build_firmware
from edgekit.aot.packages.compiled import CompiledTree, copy_into
from edgekit.base.errors import UsageError
from edgekit.base.options import option
from edgekit.base.wording import counted

FOLDER = "energyrunner"


def write_energyrunner(compiled: CompiledTree, folder: Path, scratch: Path) -> tuple[str, ...]:
    """Write the firmware; UsageError for a model that the framework has no words for."""
    inputs = [spec for spec in compiled.tree.inputs if spec.state is None]
    if len(inputs) != 1 or len(compiled.tree.inputs) != 1 or len(compiled.tree.outputs) != 1:
        raise UsageError(
            f"{compiled.name} has {counted(len(compiled.tree.inputs), 'input')} and "
            f"{counted(len(compiled.tree.outputs), 'output')}, and EnergyRunner knows one of each",
            hint=f"leave out {option('format', 'energyrunner')}",
        )
    made = build_firmware(
        [compiled.tree.folder],
        compiled.board,
        compiled.toolchain,
        scratch / FOLDER,
        protocol="energyrunner",
    )
    copy_into(made.elf, folder / FOLDER / FIRMWARE_NAME)
    return (f"{FOLDER}/{FIRMWARE_NAME}",)
