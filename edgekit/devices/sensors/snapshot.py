"""A snapshot of sysfs: the files that discovery needs with their contents, from this machine or a
board, read in one go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.devices.sensors.sensor import Quantity

LONGEST_VALUE = 200
LONGEST_LINES = 4000
"""Longest excerpt, in all, of a file of which only some lines matter."""
_LARGEST_FILE = 1 << 20
_MOST_FILES = 4000

THROTTLED = "/sys/devices/platform/soc/soc:firmware/get_throttled"
"""Flags in hexadecimal digits and nothing else."""

NVMAP_CLIENTS = "/sys/kernel/debug/nvmap/iovmm/clients"
"""Use of a Jetson's GPU memory by process; the last line is the total. Only root may read it."""
NVPMODEL, NVPMODEL_STATUS = "/etc/nvpmodel.conf", "/var/lib/nvpmodel/status"
"""Names of a Jetson's power modes, among much else, and its present mode."""


@dataclass(frozen=True)
class PlainFile:
    """Files that hold one quantity each, as a number."""

    pattern: str
    quantity: Quantity
    scale: float
    name: str = ""
    """The sensor's name; without one, that of the folder that the file is in."""


PLAIN_FILES: tuple[PlainFile, ...] = (
    PlainFile("/sys/class/devfreq/*/cur_freq", "megahertz", 1e-6),
    # Undervoltage and throttling, from a Raspberry Pi's firmware.
    PlainFile(THROTTLED, "throttling", 1.0, name="firmware"),
    PlainFile("/sys/class/hwmon/hwmon*/in0_lcrit_alarm", "throttling", 1.0, name="undervoltage"),
    PlainFile("/sys/devices/pwm-fan/cur_pwm", "fan", 1.0),
)
"""Sensors that need no code: docs/adding/sensor.md."""

PATTERNS: tuple[str, ...] = (
    *(plain.pattern for plain in PLAIN_FILES),
    # Power monitors on Jetsons (JetPack 5 and later, Thor), and any that a user added.
    "/sys/bus/i2c/devices/*/name",
    "/sys/bus/i2c/devices/*/hwmon/hwmon*/in*_label",
    "/sys/bus/i2c/devices/*/hwmon/hwmon*/in*_input",
    "/sys/bus/i2c/devices/*/hwmon/hwmon*/curr*_input",
    "/sys/bus/i2c/devices/*/hwmon/hwmon*/power*_input",
    # The same on JetPack 4.
    "/sys/bus/i2c/devices/*/iio:device*/rail_name_*",
    "/sys/bus/i2c/devices/*/iio:device*/in_power*_input",
    # Hardware monitors by the kernel's names.
    "/sys/class/hwmon/hwmon*/name",
    "/sys/class/hwmon/hwmon*/power*_label",
    "/sys/class/hwmon/hwmon*/power*_input",
    "/sys/class/hwmon/hwmon*/power*_average",
    "/sys/class/hwmon/hwmon*/temp*_label",
    "/sys/class/hwmon/hwmon*/temp*_input",
    "/sys/class/hwmon/hwmon*/fan*_input",
    "/sys/class/hwmon/hwmon*/pwm[0-9]",
    "/sys/class/hwmon/hwmon*/rpm",
    "/sys/class/thermal/thermal_zone*/type",
    "/sys/class/thermal/thermal_zone*/temp",
    # Intel's and AMD's energy counters.
    "/sys/class/powercap/intel-rapl:*/name",
    "/sys/class/powercap/intel-rapl:*/energy_uj",
    "/sys/class/powercap/intel-rapl:*/max_energy_range_uj",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_max_freq",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
    # A Jetson's power mode.
    NVPMODEL_STATUS,
    "/proc/device-tree/model",
    # Used memory of an AMD GPU.
    "/sys/class/drm/card[0-9]/device/mem_info_vram_used",
)

LINES_OF: Mapping[str, str] = {NVMAP_CLIENTS: "total", NVPMODEL: "< POWER_MODEL"}
"""Long files of which only lines with this beginning matter."""

SCRIPT = (
    "for f in "
    + " ".join(PATTERNS)
    + '; do [ -r "$f" ] && printf "%s\\t%s\\n" "$f" '
    + f'"$(head -c {LONGEST_VALUE} "$f" 2>/dev/null | tr "\\000\\n\\t" "   ")"; done; '
    + "".join(
        f'[ -r {path} ] && printf "%s\\t%s\\n" {path} '
        f'"$(grep "^{word}" {path} 2>/dev/null | head -c {LONGEST_LINES} | tr -s "\\n\\t " " ")"; '
        for path, word in LINES_OF.items()
    )
    + ":"
)
"""Shell command that prints each file as a line: its path, a tab, its content."""


def parse_snapshot(output: str) -> dict[str, str]:
    """Read the output of `SCRIPT`; invalid lines are skipped."""
    found: dict[str, str] = {}
    for line in output.splitlines()[:_MOST_FILES]:
        path, tab, value = line.partition("\t")
        if tab and path.startswith("/") and value.strip():
            longest = LONGEST_LINES if path in LINES_OF else LONGEST_VALUE
            found[path] = value.strip()[:longest]
    return found


def local_snapshot(root: Path = Path("/")) -> dict[str, str]:
    """Return the snapshot of this machine, or of a tree in a folder."""
    found: dict[str, str] = {}
    for pattern in (*PATTERNS, *LINES_OF):
        for path in sorted(root.glob(pattern.lstrip("/"))):
            name = "/" + str(path.relative_to(root))
            value = read_value(name, root)
            if value:
                found[name] = value
            if len(found) >= _MOST_FILES:
                return found
    return found


def read_value(name: str, root: Path = Path("/")) -> str:
    """Return a file's value; empty if it can't be read: a sensor may refuse at any moment."""
    beginning = LINES_OF.get(name)
    try:
        with (root / name.lstrip("/")).open("rb") as stream:
            data = stream.read(LONGEST_VALUE if beginning is None else _LARGEST_FILE)
    except OSError:
        return ""
    if beginning is not None:
        wanted = beginning.encode()
        lines = [line for line in data.splitlines() if line.startswith(wanted)]
        data = b" ".join(lines)[:LONGEST_LINES]
    return " ".join(data.replace(b"\0", b" ").decode(errors="replace").split())


def folders(snapshot: Mapping[str, str], prefix: str, names: Iterable[str]) -> list[str]:
    """Return the folders below `prefix` that hold a file of one of those names, in order."""
    wanted = tuple(f"/{name}" for name in names)
    return sorted(
        {
            path.rpartition("/")[0]
            for path in snapshot
            if path.startswith(prefix) and path.endswith(wanted)
        }
    )
