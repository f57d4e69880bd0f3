"""The process that compiles for a quick search: reads orders on stdin, answers on stdout.

Messages are pickles: both ends are this edgekit, and no other process has the pipe.
"""

from __future__ import annotations

import os
import pickle
import sys

from edgekit.base.parent_process import end_with_parent
from edgekit.base.tvm_compat import load_tvm
from edgekit.building.compilation import failure_of
from edgekit.tuning.messages import Order, TrialOrder


def main() -> None:
    end_with_parent()
    # Other output on stdout must not mix with the messages.
    channel = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    load_tvm()
    from edgekit.tuning.trials import Workshop

    workshop: Workshop | None = None
    while True:
        try:
            order = pickle.load(sys.stdin.buffer)
        except EOFError:
            os._exit(0)  # skip TVM's teardown
        try:
            answer: object
            if isinstance(order, Order):
                workshop = Workshop(order)
                answer = workshop.kernels
            else:
                assert isinstance(order, TrialOrder)
                assert workshop is not None
                answer = workshop.make(order)
        except Exception as error:  # noqa: BLE001 - reported to the parent
            answer = failure_of(error)
        channel.write(pickle.dumps(answer))


if __name__ == "__main__":
    main()
