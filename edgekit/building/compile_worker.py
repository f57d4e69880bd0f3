"""The process that compiles: takes a job on stdin, reports on stdout until it ends or is killed.

Messages are pickles. That is safe: both ends are this edgekit, and no other process has the pipe.
"""

from __future__ import annotations

import os
import pickle
import sys

from edgekit.base.events import Events
from edgekit.base.parent_process import end_with_parent
from edgekit.building.compilation import InProcessCompilation, failure_of


def main() -> None:
    end_with_parent()
    # Other writers to stdout must not get between the messages.
    channel = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def send(message: object) -> None:
        channel.write(pickle.dumps(message))

    try:
        job = pickle.load(sys.stdin.buffer)
        compilation = InProcessCompilation(job, Events(send))
        send(compilation.imported())
        send(compilation.compiled())
    except Exception as error:  # noqa: BLE001 - reported to the parent, as the bug it may be
        send(failure_of(error))
    channel.close()
    sys.stderr.flush()
    os._exit(0)  # TVM needs no orderly shutdown, which takes long


if __name__ == "__main__":
    main()
