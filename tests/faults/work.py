"""The work that goes on while something fails: python -m faults.work COUNT [TRACKER_PORT]

One session after another on whatever device the farm gives, one record for each, its number printed
once it is safe. Started again, it goes on where the records end. Only the store and the farm decide
what is done again: a device that fails is asked for once more.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from support.stores import a_record, a_session

from edgekit.base.errors import DeviceError, EdgekitError
from edgekit.farm.session import farm_session
from edgekit.store.address import default_url, findings_folder
from edgekit.store.database import close_store, open_store
from edgekit.store.outbox import deliver_findings
from edgekit.store.tuning import all_records
from edgekit.store.tuning_log import TuningLog, tuning_log

KEY = "local"
SESSION_SECONDS = 8.0
SECONDS_IN_ALL = 150.0


def main() -> None:
    count = int(sys.argv[1])
    done = known(default_url())
    deadline = time.monotonic() + SECONDS_IN_ALL
    with tuning_log(a_session()) as log:
        for number in range(count):
            if number in done:
                print(number, flush=True)
                continue
            measure(number, deadline)
            keep(log, number, deadline)
            print(number, flush=True)


def known(url: str) -> set[int]:
    """Records that are safe already. A database that is away for a moment is waited for."""
    for _ in range(60):
        try:
            store = open_store(url)
            try:
                deliver_findings(store, findings_folder(url))
                return {int(record.id, 16) for record in all_records(store)}
            finally:
                close_store(store)
        except EdgekitError as error:
            print(f"the store: {error.message}", file=sys.stderr, flush=True)
            time.sleep(1)
    raise SystemExit("the store stayed away")


def measure(number: int, deadline: float) -> None:
    while True:
        try:
            left = deadline - time.monotonic()
            with farm_session(KEY, f"work {number}", SESSION_SECONDS, wait=left) as session:
                session.get_function("edgekit.tvm_version")()
                time.sleep(0.15)
                session.get_function("edgekit.tvm_version")()
            return
        except DeviceError as error:
            print(f"{number}: {error.message}", file=sys.stderr, flush=True)
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def keep(log: TuningLog, number: int, deadline: float) -> None:
    """A full disk is waited for: what is printed is safe."""
    log.add([a_record(number)])
    while not is_safe(number):
        if time.monotonic() > deadline:
            raise SystemExit("there is no place for records")
        time.sleep(0.2)
        log.add([])


def is_safe(number: int) -> bool:
    """Return whether it is in a file that waits, or in the store."""
    folder = findings_folder(default_url())
    word = a_record(number).id
    for _ in range(2):  # a file that is just being delivered is in neither for us, then in one
        for path in folder.glob("*.json"):
            if word in text_of(path):
                return True
        if number in known(default_url()):
            return True
    return False


def text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    main()
