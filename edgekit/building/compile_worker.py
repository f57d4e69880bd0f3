"""The process that compiles: takes a job and reports until it ends or is killed."""

from __future__ import annotations

from edgekit.base.child import Channel
from edgekit.base.events import Events
from edgekit.base.failure import failure_of
from edgekit.building.compilation import InProcessCompilation


def main() -> None:
    channel = Channel()
    try:
        compilation = InProcessCompilation(channel.next(), Events(channel.send))
        channel.send(compilation.imported())
        channel.send(compilation.compiled())
    except Exception as error:  # noqa: BLE001 - reported to the parent, as the bug it may be
        channel.send(failure_of(error))
    channel.end()


if __name__ == "__main__":
    main()
