"""The process that runs oracles: opens what a call needs, and answers until its parent ends."""

from __future__ import annotations

from edgekit.base.child import Channel
from edgekit.base.failure import failure_of
from edgekit.models.oracle_process import Call
from edgekit.models.oracle_types import Oracle


def main() -> None:
    channel = Channel()
    opened: dict[int, Oracle] = {}
    while True:
        call: Call = channel.next()
        for number in call.dropped:
            opened.pop(number, None)
        try:
            if call.number not in opened:
                opened[call.number] = call.engine(call.source)
            oracle = opened[call.number]
            method = call.method
            answer = getattr(oracle, method)(*call.arguments) if method else oracle.version
        except Exception as error:  # noqa: BLE001 - the caller raises it
            answer = failure_of(error)
        channel.send(answer)


if __name__ == "__main__":
    main()
