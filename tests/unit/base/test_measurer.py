"""What tells an emulated machine from a real one, from what such machines really say."""

from __future__ import annotations

import pytest

from edgekit.base.measurer import measurer_by

CORTEX_A72 = "CPU implementer\t: 0x41\nCPU part\t: 0xd08\n"
MAX_OF_QEMU = "CPU implementer\t: 0x00\nCPU part\t: 0x051\n"
XEON = "model name\t: Intel(R) Xeon(R) CPU\nflags\t\t: fpu hypervisor\n"
TCG = "model name\t: QEMU TCG CPU version 2.5+\nflags\t\t: fpu hypervisor\n"


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
        ("", "", False),
    ],
)
def test_only_what_qemu_computes_itself_is_emulated(
    platform: str, cpuinfo: str, emulated: bool
) -> None:
    expected = "emulator" if emulated else "hardware"
    assert measurer_by(platform, cpuinfo) == expected
