"""The entry point. It imports next to nothing, so that Ctrl-C is answered from the start."""

from __future__ import annotations

import signal


def main() -> None:
    """What the `edgekit` script calls."""
    answer = signal.getsignal(signal.SIGINT)
    if answer is signal.default_int_handler:
        # Modules take a moment to load, and Python would end it with a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from edgekit.cli import program

    signal.signal(signal.SIGINT, answer)
    program.main()


if __name__ == "__main__":
    main()
