"""The meaning of a stopped core's registers."""

from __future__ import annotations

from edgekit.aot.firmware.firmware_file import FirmwareFile
from edgekit.base.errors import DeviceError
from edgekit.base.wording import size
from edgekit.devices.serial.messages import FaultReport

_HARD_FAULT = 3
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


_CAUSES = {
    0: "it jumped to an address that is not aligned",
    1: "it jumped to where there is no code",
    2: "it executed an instruction that this core does not have",
    3: "it came to a breakpoint",
    4: "it read from the address {address:#010x}, which is not aligned",
    5: "it read from the address {address:#010x}, where there is no memory",
    6: "it wrote to the address {address:#010x}, which is not aligned",
    7: "it wrote to the address {address:#010x}, where there is no memory",
}
"""What RISC-V's mcause says; mtval is the address."""
_NAMES = {
    "EM_ARM": ("r0", "r1", "r2", "r3", "r12", "lr", "pc", "xpsr"),
    "EM_RISCV": ("a0", "a1", "a2", "a3", "s0", "ra", "pc", "mstatus"),
}


def explain_fault(
    device: str, report: FaultReport, firmware: FirmwareFile, stack: int
) -> DeviceError:
    where = _place(report.pc, firmware)
    is_arm = firmware.machine == "EM_ARM"
    if report.registers is None or (is_arm and report.cfsr & _STACK_BITS):
        return stack_overflow(device, stack, where, _registers(report, firmware))
    return DeviceError(
        f"the firmware on {device} faulted in {where or 'an unknown function'}: "
        f"{_what(report) if is_arm else _cause(report)}",
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


def _cause(report: FaultReport) -> str:
    text = _CAUSES.get(report.exception, f"cause {report.exception}")
    return text.format(address=report.cfsr)


def _what(report: FaultReport) -> str:
    if report.cfsr & _PRECISE and report.cfsr & _BFAR_VALID:
        return f"it used the address {report.bfar:#010x}, where there is no memory"
    if report.cfsr & _DATA_VIOLATION and report.cfsr & _MMFAR_VALID:
        return f"it used the address {report.mmfar:#010x}, which it may not"
    for bits, words in _WORDS:
        if report.cfsr & bits:
            return words
    if report.exception == _HARD_FAULT and not report.cfsr:
        return "an address or an instruction was not valid; this core does not say which"
    return f"exception {report.exception}"


def _place(address: int | None, firmware: FirmwareFile) -> str | None:
    function = None if address is None else firmware.function_at(address)
    return None if function is None else function.name


def _registers(report: FaultReport, firmware: FirmwareFile) -> tuple[str, ...]:
    names = _NAMES[firmware.machine]
    lines = (
        [
            f"cfsr {report.cfsr:#010x}  hfsr {report.hfsr:#010x}  "
            f"mmfar {report.mmfar:#010x}  bfar {report.bfar:#010x}",
            f"exception {report.exception}  exc_return {report.exc_return:#010x}  "
            f"sp {report.sp:#010x}",
        ]
        if firmware.machine == "EM_ARM"
        else [f"mcause {report.exception}  mtval {report.cfsr:#010x}  sp {report.sp:#010x}"]
    )
    if report.registers is not None:
        values = [
            f"{name} {value:#010x}" for name, value in zip(names, report.registers, strict=True)
        ]
        lines += ["  ".join(values[:4]), "  ".join(values[4:])]
        for name, address in (("pc", report.pc), (names[5], report.lr)):
            place = _place(address, firmware)
            if place is not None:
                lines.append(f"{name} is in {place}")
    return tuple(lines)
