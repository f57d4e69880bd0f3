"""The meaning of a stopped core's registers."""

from __future__ import annotations

from edgekit.aot.firmware.firmware_file import FirmwareFile
from edgekit.base.errors import DeviceError
from edgekit.base.wording import size
from edgekit.devices.serial.messages import FaultReport

_STACK_BITS = (1 << 3 | 1 << 4 | 1 << 5) | (1 << 11 | 1 << 12 | 1 << 13) | 1 << 20
_DATA_VIOLATION, _CODE_VIOLATION, _MMFAR_VALID = 1 << 1, 1 << 0, 1 << 7
_CODE_BUS, _PRECISE, _IMPRECISE, _BFAR_VALID = 1 << 8, 1 << 9, 1 << 10, 1 << 15
_WORDS = (
    (1 << 25, "it divided by zero"),
    (1 << 24, "it used an address that is not aligned"),
    (1 << 19, "it used a coprocessor, such as the FPU, that is off or missing"),
    (1 << 18, "it returned from an exception with a damaged stack"),
    (1 << 17, "it jumped to an address that is no Thumb code"),
    (1 << 16, "it executed an instruction that this core does not have"),
    (_CODE_BUS | _CODE_VIOLATION, "it jumped to where there is no code"),
    (_IMPRECISE, "it wrote to where there is no memory, some instructions earlier"),
)


def explain_fault(
    device: str, report: FaultReport, firmware: FirmwareFile, stack: int
) -> DeviceError:
    where = _place(report.pc, firmware)
    if report.registers is None or report.cfsr & _STACK_BITS:
        return stack_overflow(device, stack, where, _registers(report, firmware))
    return DeviceError(
        f"the firmware on {device} faulted in {where or 'an unknown function'}: {_what(report)}",
        hint="gdb with the bundle's firmware.elf shows the line; report a line of edgekit's code",
        details=_registers(report, firmware),
    )


def stack_overflow(
    device: str, stack: int, where: str | None = None, details: tuple[str, ...] = ()
) -> DeviceError:
    return DeviceError(
        f"the firmware on {device} ran out of its {size(stack)} of stack"
        + (f" in {where}" if where else ""),
        hint="give it more with [firmware] stack in the board's profile",
        details=details,
    )


def _what(report: FaultReport) -> str:
    if report.cfsr & _PRECISE and report.cfsr & _BFAR_VALID:
        return f"it used the address {report.bfar:#010x}, where there is no memory"
    if report.cfsr & _DATA_VIOLATION and report.cfsr & _MMFAR_VALID:
        return f"it used the address {report.mmfar:#010x}, which it may not"
    for bits, words in _WORDS:
        if report.cfsr & bits:
            return words
    return f"exception {report.exception}"


def _place(address: int | None, firmware: FirmwareFile) -> str | None:
    function = None if address is None else firmware.function_at(address)
    return None if function is None else function.name


def _registers(report: FaultReport, firmware: FirmwareFile) -> tuple[str, ...]:
    lines = [
        f"cfsr {report.cfsr:#010x}  hfsr {report.hfsr:#010x}  "
        f"mmfar {report.mmfar:#010x}  bfar {report.bfar:#010x}",
        f"exception {report.exception}  exc_return {report.exc_return:#010x}  sp {report.sp:#010x}",
    ]
    if report.registers is not None:
        names = ("r0", "r1", "r2", "r3", "r12", "lr", "pc", "xpsr")
        values = [
            f"{name} {value:#010x}" for name, value in zip(names, report.registers, strict=True)
        ]
        lines += ["  ".join(values[:4]), "  ".join(values[4:])]
        for name, address in (("pc", report.pc), ("lr", report.lr)):
            place = _place(address, firmware)
            if place is not None:
                lines.append(f"{name} is in {place}")
    return tuple(lines)
