"""The farm of the faults, in a process of its own.

    python -m faults.keep PORT DEVICES AGENT WORKSPACE

Devices are edgekit's own agents on this machine, or with DEVICES 0 those that are known. It loses
patience sooner than a farm of real boards.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks import simulated_device
from edgekit.devices.keeper_messages import FarmStatus
from edgekit.farm.health import Limits
from edgekit.farm.plan import FarmPlan, Member, plan_farm
from edgekit.farm.run import run_farm

LIMITS = Limits(faults=99, first_wait=0.5, longest_wait=2.0, silence=12.0, overdue=2.0)
KEY = "local"


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    port, devices, agent, workspace = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    if devices:
        members = tuple(Member(f"d{n}", "local", KEY) for n in range(devices))
        program = str(Path(simulated_device.__file__))
        plan = FarmPlan(
            members,
            port=port,
            worker=(sys.executable, "-I", "-S", program, agent, workspace),
        )
    else:
        plan = plan_farm(None, (), port)

    def started(status: FarmStatus) -> None:
        print(json.dumps({"pid": status.pid}), flush=True)

    run_farm(replace(plan, limits=LIMITS), started=started)


if __name__ == "__main__":
    main()
