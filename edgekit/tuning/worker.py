"""The process that compiles for a search: takes orders on stdin, answers on stdout.

Messages are pickles: both ends are this very edgekit, and nobody else has the pipe.
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
    # Whatever else writes to stdout must not end up between the messages.
    channel = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    load_tvm()
    from edgekit.tuning.trials import Workshop

    workshop: Workshop | None = None
    while True:
        try:
            order = pickle.load(sys.stdin.buffer)
        except EOFError:
            os._exit(0)  # nothing of TVM's needs taking down piece by piece
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
