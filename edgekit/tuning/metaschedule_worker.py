"""The process that reads and writes MetaSchedule's files with TVM, which a bad file may crash.

Messages are pickles: both ends are this edgekit.
"""

from __future__ import annotations

import os
import pickle
import sys

from edgekit.base.parent_process import end_with_parent
from edgekit.base.tvm_compat import load_tvm
from edgekit.tuning.metaschedule_orders import ToExport, ToRead


def main() -> None:
    end_with_parent()
    # Other output on stdout must not mix with the answer.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    load_tvm()
    from edgekit.tuning.metaschedule import export_to, kernel_of

    order = pickle.load(sys.stdin.buffer)
    answer: object
    if isinstance(order, ToExport):
        answer = export_to(order.folder, order)
    else:
        assert isinstance(order, ToRead)
        answer = tuple(kernel_of(line) for line in order.workloads)
    pickle.dump(answer, channel)
    channel.flush()
    os._exit(0)  # skip TVM's teardown


if __name__ == "__main__":
    main()
