"""Every fault, one after the other: python -m faults [NAME ...]. Exits with 1 where one breaks what
has to hold: the work finishes, no record that was safe is lost, and nothing stays behind."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from support.needs import Lacking
from support.session import session

from edgekit.base.errors import EdgekitError
from faults import device_faults, host_faults, keeper_faults, store_faults, tuning_faults
from faults.store_faults import CannotBeTried

Fault = Callable[[Path], None]


def all_faults() -> dict[str, Fault]:
    return {
        name: value
        for module in (device_faults, keeper_faults, store_faults, host_faults, tuning_faults)
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
        and not name.startswith("_")
        and list(getattr(value, "__annotations__", {})) == ["folder", "return"]
    }


def tried(fault: Fault) -> tuple[str, str]:
    """How it came out, and why."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        # PostgreSQL runs as another user, who has to get to its folder.
        Path(folder).chmod(0o755)
        try:
            fault(Path(folder) / "w")
        except (CannotBeTried, Lacking) as reason:
            return "not tried", str(reason)
        except (AssertionError, EdgekitError) as error:
            return "BROKEN", str(error) or traceback.format_exc(limit=-1)
        except Exception:  # noqa: BLE001 - the other faults are to be tried all the same
            return "BROKEN", traceback.format_exc(limit=-3)
    return "holds", ""


def main(wanted: list[str]) -> int:
    faults = all_faults()
    unknown = set(wanted) - set(faults)
    if unknown:
        print(f"there is no fault {', '.join(sorted(unknown))}; there are: {', '.join(faults)}")
        return 2
    broken = 0
    print(f"{'fault':36} {'seconds':>7}  outcome", flush=True)
    for name in wanted or faults:
        began = time.monotonic()
        outcome, why = tried(faults[name])
        broken += outcome == "BROKEN"
        title = name.replace("_", " ")
        print(f"{title:36} {time.monotonic() - began:7.1f}  {outcome}", flush=True)
        if why:
            print(f"    {why}", flush=True)
    print(f"{len(wanted or faults)} faults, {broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    with session():
        sys.exit(main(sys.argv[1:]))
