"""What tells an emulated machine from a real one, from what such machines really say."""

from __future__ import annotations

import pytest

from edgekit.base.measurer import core_measurer, measurer_by

CORTEX_A72 = "CPU implementer\t: 0x41\nCPU part\t: 0xd08\n"
MAX_OF_QEMU = "CPU implementer\t: 0x00\nCPU part\t: 0x051\n"
XEON = "model name\t: Intel(R) Xeon(R) CPU\nflags\t\t: fpu hypervisor\n"
TCG = "model name\t: QEMU TCG CPU version 2.5+\nflags\t\t: fpu hypervisor\n"
PI3 = "raspberrypi,3-model-b brcm,bcm2837   arch_sys_counter"
PI3_OF_QEMU = "BogoMIPS\t: 125.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\nCPU revision\t: 4\n"


@pytest.mark.parametrize(
    ("platform", "cpuinfo", "emulated"),
    [
        ("raspberrypi,4-model-b brcm,bcm2711   arch_sys_counter", CORTEX_A72, False),
        ("linux,dummy-virt   arch_sys_counter", CORTEX_A72, True),
        (" QEMU QEMU Virtual Machine arch_sys_counter", CORTEX_A72, True),
        (" QEMU KVM Virtual Machine arch_sys_counter", CORTEX_A72, False),
        ("some,board   arch_sys_counter", MAX_OF_QEMU, True),
        ("riscv-virtio   riscv_clocksource", "isa\t: rv64imafdc\n", True),
        (" QEMU Standard PC (Q35 + ICH9, 2009) tsc hpet acpi_pm", XEON, True),
        (" QEMU Standard PC (Q35 + ICH9, 2009) kvm-clock tsc acpi_pm", XEON, False),
        (" Google Google Compute Engine kvm-clock tsc acpi_pm", XEON, False),
        (" Dell Inc. PowerEdge tsc hpet acpi_pm", XEON, False),
        ("", TCG, True),
        # What `-M raspi3b` says with Debian's kernel, and without its performance monitor.
        (f"{PI3} event=0x0011 ", PI3_OF_QEMU, True),
        (PI3, PI3_OF_QEMU, True),
        (f"{PI3} event=0x0011 ", PI3_OF_QEMU.replace("125.00", "38.40"), True),
        (f"{PI3} event=0x0011 event=0x0003", PI3_OF_QEMU.replace("125.00", "38.40"), False),
        (f"{PI3} event=0x011 event=0x003", PI3_OF_QEMU.replace("125.00", "38.40"), False),
        (PI3, PI3_OF_QEMU.replace("125.00", "38.40"), False),
        ("some,board event=0x0011 event=0x0003", PI3_OF_QEMU, False),
        ("", "", False),
    ],
)
def test_only_what_qemu_computes_itself_is_emulated(
    platform: str, cpuinfo: str, emulated: bool
) -> None:
    expected = "emulator" if emulated else "hardware"
    assert measurer_by(platform, cpuinfo) == expected


@pytest.mark.parametrize(
    ("cpuid", "measurer"),
    [
        pytest.param(0x410FC240, "emulator", id="QEMU's Cortex-M4"),
        pytest.param(0x410FC231, "emulator", id="QEMU's Cortex-M3"),
        pytest.param(0x410FC241, "hardware", id="the Cortex-M4 of an STM32F405"),
        pytest.param(0x40141185, "emulator", id="QEMU's RV32, which has a supervisor mode"),
        pytest.param(0x40101104, "hardware", id="the core of an ESP32-C3"),
    ],
)
def test_a_first_revision_of_a_microcontrollers_core_is_qemus(cpuid: int, measurer: str) -> None:
    assert core_measurer(cpuid) == measurer
