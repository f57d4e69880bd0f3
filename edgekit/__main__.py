"""The entry point. It imports next to nothing, so that Ctrl-C is answered from the start."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal, less the enums that take time to load
import sys


def main(*, as_module: bool = False) -> None:
    """Run the command line. The `edgekit` script calls it, and `python -m edgekit` as a module."""
    answer = _signal.getsignal(_signal.SIGINT)
    if answer is _signal.default_int_handler:
        # Modules take a moment to load, and Python would end it with a traceback.
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    if as_module:
        _forget_current_folder()
    from edgekit.cli import program

    _signal.signal(_signal.SIGINT, answer)
    program.main()


def _forget_current_folder() -> None:
    """Take the current folder, where `python -m` looks first, off the path of modules. What is
    imported from now on is no file of a project that somebody is in."""
    first = sys.path.pop(0)
    from pathlib import Path  # from now on: a file of this name may be in that folder

    ours = Path(__file__).resolve().parent.parent
    try:
        is_current = Path(first).resolve() == Path.cwd() != ours
    except FileNotFoundError:
        is_current = True  # a folder that is gone has no modules
    if not is_current:
        sys.path.insert(0, first)


if __name__ == "__main__":
    main(as_module=True)
