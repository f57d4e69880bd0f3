"""The programs that write firmware through a probe or a boot loader, as data, and their runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from edgekit.base.errors import UsageError
from edgekit.base.files import scratch_directory
from edgekit.base.paths import cache_dir
from edgekit.devices.flash.image import one_image
from edgekit.devices.flash.job import (
    LOCKED,
    NO_PROBE,
    NO_TARGET,
    VERIFY_FAILED,
    WRONG_CHIP,
    Failure,
    FlashJob,
    explained,
    failure,
)


@dataclass(frozen=True)
class FlashProgram:
    """A program that writes and verifies a firmware."""

    title: str
    name: str
    """The name of its executable."""
    package: str
    """The command that installs it."""
    words: Callable[[FlashJob, str], list[str]]
    """The words after the program, for a job and the path of the firmware."""
    proof: str
    """The text that it prints once the firmware is verified; empty if its status is enough."""
    failures: tuple[Failure, ...]
    takes_image: bool = False
    """Whether it takes bytes without ELF headers."""


def write_with(program: FlashProgram, job: FlashJob) -> None:
    """Write and verify a firmware; DeviceError explains a failure."""
    path = job.tools.find(program.name, program.package)
    with _firmware(program, job) as firmware:
        said = job.tools.run([path, *program.words(job, firmware)])
    if said.status != 0 or program.proof not in said.output:
        raise explained(job, program.title, said.output, program.failures)


@contextmanager
def _firmware(program: FlashProgram, job: FlashJob) -> Iterator[str]:
    """Provide the firmware's path on the machine of the tools."""
    if not program.takes_image:
        with job.tools.placed(job.firmware.path) as path:
            yield path
        return
    with scratch_directory(cache_dir()) as scratch:
        image = scratch / "firmware.bin"
        image.write_bytes(one_image(job.firmware)[1])
        with job.tools.placed(image) as path:
            yield path


NO_PORTS = tuple(
    word
    for service in ("gdb_port", "tcl_port", "telnet_port")
    for word in ("-c", f"{service} disabled")
)
"""Options that close OpenOCD's ports on loopback, which would obey every user of the machine."""


def _openocd_words(job: FlashJob, path: str) -> list[str]:
    if any(c in path for c in '{}\\"$[];'):
        raise UsageError(
            f"the path {path} is not one that OpenOCD can read",
            hint="move the bundle to another folder",
        )
    words = [*NO_PORTS, *(word for script in job.flash.scripts for word in ("-f", script))]
    if job.probe is not None:
        words += ["-c", f"adapter serial {job.probe}"]
    return [*words, "-c", f"program {{{path}}} verify reset exit"]


def _pyocd_words(job: FlashJob, path: str) -> list[str]:
    words = ["load", "--no-config", "--no-wait", "--format", "elf", "--target", job.flash.target]
    if job.probe is not None:
        words += ["--uid", job.probe]
    return [*words, path]


def _stm32loader_words(job: FlashJob, path: str) -> list[str]:
    if job.port is None:
        raise UsageError(
            f"the serial port of {job.device} is unknown",
            hint="edgekit device add NAME --board BOARD --port /dev/ttyUSB0",
        )
    address = f"{one_image(job.firmware)[0]:#010x}"
    line = ["-p", job.port, "-b", "115200", "-f", job.flash.target]
    return ["-e", "-w", "-v", *line, "-a", address, "-g", address, path]


OPENOCD = FlashProgram(
    title="OpenOCD",
    name="openocd",
    package="apt-get install openocd",
    words=_openocd_words,
    proof="** Verified OK **",
    failures=(
        failure(
            r"libusb_open\(\) failed with LIBUSB_ERROR_ACCESS|insufficient permissions",
            "this user may not use the debug probe of {device}",
            "install OpenOCD's udev rules (60-openocd.rules), then plug the probe in again",
        ),
        failure(
            r"LIBUSB_ERROR_BUSY|resource busy|address already in use|couldn't bind .* to socket",
            "the debug probe of {device} is in use by another program",
            "close the other debugger",
        ),
        failure(
            r"(device|open|adapter).{0,40}not found|no device found|error: open failed"
            r"|unable to find.*(probe|device|cmsis)|no J-Link device found",
            *NO_PROBE,
        ),
        failure(
            r"readout protect|device (is )?(locked|protected)|flash.*(is|was) (write )?protected"
            r"|AP.*(locked|protected)|device security bit set",
            LOCKED,
            "unlocking erases the chip: with OpenOCD, `stm32f4x unlock 0` or `nrf5 mass_erase`",
        ),
        failure(
            r"unexpected idcode|UNEXPECTED:|expected \d+ of \d+: 0x|could not find (the )?core"
            r"|cannot identify target|unknown device id|device id.*unknown|wrong device",
            *WRONG_CHIP,
        ),
        failure(r"verify failed|checksum mismatch|contents differ", *VERIFY_FAILED),
        failure(
            r"target voltage may be too low|init mode failed|unable to connect to the target"
            r"|error connecting dp|cannot read IDR|failed to (read|connect).*(dp|ap|target)"
            r"|target not examined",
            *NO_TARGET,
        ),
        failure(
            r"couldn't find|can't find .*\.cfg",
            "OpenOCD lacks a script that the profile of {board} names",
            "install a newer OpenOCD, or change [flash] scripts",
        ),
    ),
)
"""Most debug probes, most chips."""

PYOCD = FlashProgram(
    title="pyOCD",
    name="pyocd",
    package="pip install pyocd",
    words=_pyocd_words,
    proof="",
    failures=(
        failure(
            r"access denied|permission denied|insufficient permissions",
            "this user may not use the debug probe of {device}",
            "install pyOCD's udev rules, then plug the probe in again",
        ),
        failure(
            r"no available debug probes|no connected debug probes|waiting for a debug probe"
            r"|no probes? (found|with)",
            *NO_PROBE,
        ),
        failure(
            r"target type .* not recognized",
            "pyOCD does not know the chip that the profile of {board} names",
            "install its pack with `pyocd pack install NAME`, or change [flash] target",
        ),
        failure(
            r"approtect|device is locked|access port.*(locked|protected)|(is|flash).*locked",
            LOCKED,
            "unlocking erases the chip: pyocd erase --mass",
        ),
        failure(r"verif.*fail|programming failed.*verif|miscompare", *VERIFY_FAILED),
        failure(
            r"(idcode|cpuid|part number).*(unexpected|mismatch)|no cores were discovered"
            r"|does not match.*target|unexpected.*(part|cpu)",
            *WRONG_CHIP,
        ),
        failure(
            r"no ack|transfer (fault|timeout|error)|unexpected ack|SWD/JTAG communication failure",
            *NO_TARGET,
        ),
    ),
)
"""CMSIS-DAP, ST-LINK and J-Link probes, with chips from CMSIS packs."""

STM32LOADER = FlashProgram(
    title="stm32loader",
    name="stm32loader",
    package="pip install stm32loader",
    words=_stm32loader_words,
    proof="Verification OK",
    failures=(
        failure(
            r"could not open port|no such file|cannot open|error opening",
            "the serial port of {device} can't be opened",
            "plug it in; `edgekit device list` shows which port it is",
        ),
        failure(
            r"can't init into bootloader|bad reply from bootloader|bootloader activation timeout"
            r"|can't read port or timeout",
            "no boot loader answers on the serial port of {device}",
            "set BOOT0 high, press reset, try again, and set it low afterwards",
        ),
        failure(
            r"NACK 0x(11|31|43|44)|(read|write) memory.*no ack|unprotect failed",
            LOCKED,
            "unlocking erases the chip: stm32loader -u",
        ),
        failure(r"verification FAILED|verify.*fail|data mismatch", *VERIFY_FAILED),
        failure(
            r"unknown (device|chip|product)|not supported|wrong (family|device)|unexpected.*id",
            *WRONG_CHIP,
        ),
    ),
    takes_image=True,
)
"""The boot loader in the ROM of every STM32, over the board's own serial line."""
