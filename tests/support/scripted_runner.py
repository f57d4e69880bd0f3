"""A runner without a device: it confirms better candidates last, and dies of the fatal one."""

from __future__ import annotations

import os

from edgekit.base.child import Channel
from edgekit.tuning.messages import BatchDone, Begun, BuiltBatch, Taken, Timed

FATAL = 2
"""The place of the candidate that ends the process."""


def main() -> None:
    channel = Channel()
    while True:
        batch = channel.next()
        assert isinstance(batch, BuiltBatch)
        own, *others = batch.functions
        channel.send(Taken(1, "offer"))
        channel.send(Timed(own.place, 10.0))
        for function in others:
            channel.send(Begun(function.place))
            if function.place == FATAL:
                os._exit(1)
        for function in others:
            channel.send(Begun(function.place))
            channel.send(Timed(function.place, 5.0))
        channel.send(BatchDone(10.0, 10.0))


if __name__ == "__main__":
    main()
