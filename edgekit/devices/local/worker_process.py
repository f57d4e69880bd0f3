"""A child process that runs a model: its frames, and the explanation of its death."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from edgekit.base.arrays import Array
from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import DeviceError
from edgekit.base.options import option
from edgekit.devices.local.crashes import failure_hint, signal_hint
from edgekit.devices.local.frames import Frame, FrameError, encode_frame, read_frame

_SHOWN_STDERR_LINES = 12


class WorkerProcess:
    """Exchanges frames with one child. Use it through `started_worker`, which always ends it."""

    def __init__(self, child: Child, place: str, timeout: float) -> None:
        self._child = child
        self._place = place
        self._timeout = timeout

    def ask(
        self, doing: str, message: Mapping[str, object], arrays: Sequence[Array] = ()
    ) -> Iterator[Frame]:
        """Send a request and yield its progress frames and last its answer.

        `doing` ends the sentence "the model crashed while …".
        """
        try:
            self._child.write(encode_frame(message, arrays), self._child.deadline(self._timeout))
            while True:
                deadline = self._child.deadline(self._timeout)
                frame = read_frame(lambda buffer: self._child.fill(buffer, deadline))  # noqa: B023
                if "error" in frame.message:
                    raise self._refused(doing, str(frame.message["error"]))
                yield frame
                if "progress" not in frame.message:
                    return
        except ChildGone as gone:
            raise self._died(doing, gone) from gone
        except FrameError as error:
            raise DeviceError(
                f"the process of the model on {self._place} sent an invalid message while "
                f"{doing}: {error}",
                hint="the model may have overwritten memory; build it again",
                details=_last_words(self._child.lines),
            ) from error

    def _refused(self, doing: str, reason: str) -> DeviceError:
        first, *rest = reason.strip().splitlines() or ["no reason given"]
        return DeviceError(
            f"the model failed on {self._place} while {doing}: {first}",
            hint=failure_hint(first),
            details=(*rest[:_SHOWN_STDERR_LINES], *_last_words(self._child.lines)),
        )

    def _died(self, doing: str, gone: ChildGone) -> DeviceError:
        code = gone.code
        if gone.silent:
            what = (
                f"the model on {self._place} gave no sign of life for {self._timeout:g} s "
                f"while {doing}"
            )
            hint = (
                f"give it longer with {option('timeout')}, or check whether the machine is "
                "overloaded"
            )
        elif code is None:
            what = f"the model's process on {self._place} closed its connection while {doing}"
            hint = "the model may have closed file descriptors that are not its own"
        elif code >= 0:
            what = (
                f"the model ended its process on {self._place} with exit code {code} while {doing}"
            )
            hint = "the last lines that it wrote say more, if it wrote any"
        else:
            what = f"the model crashed on {self._place} while {doing}: {gone.reason}"
            hint = signal_hint(-code, "local")
        return DeviceError(what, hint=hint, details=_last_words(gone.lines))


@contextmanager
def started_worker(
    arguments: Sequence[str], environment: Mapping[str, str], place: str, timeout: float
) -> Iterator[WorkerProcess]:
    """Run `python -m ARGUMENTS` until the block ends in any way, Ctrl-C included."""
    with Child(*arguments, environment=environment) as child:
        child.start()
        yield WorkerProcess(child, place, timeout)


def _last_words(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple([line for line in lines if not _is_python_frame(line)][-_SHOWN_STDERR_LINES:])


def _is_python_frame(line: str) -> bool:
    """Tell whether a line shows a frame of the interpreter in the runtime's native backtrace, which
    is never the cause."""
    return line.startswith('  File "') and any(
        part in line
        for part in ("/Python/", "Python/", "Objects/", "Modules/", "<unknown>", "/Include/")
    )
