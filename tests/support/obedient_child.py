"""A child process that does what its messages say, and has the faults that they name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from edgekit.base.child import Channel
from edgekit.base.errors import ModelError
from edgekit.base.failure import failure_of


def main() -> None:
    channel = Channel()
    while True:
        match channel.next():
            case ("echo", value):
                channel.send(value)
            case ("print", text):
                os.write(1, text.encode())
                sys.stdout.write(text)
                sys.stdout.flush()
                channel.send("printed")
            case ("read",):
                channel.send(sys.stdin.read())
            case ("signal", number):
                signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
                os.kill(os.getpid(), number)
            case ("exit", code):
                sys.stderr.write("the last words\n")
                sys.stderr.flush()
                os._exit(code)
            case ("hang",):
                time.sleep(3600)
            case ("part",):
                channel.write([b"\x09\0\0\0\0\0\0\0half"])
                os._exit(0)
            case ("fail",):
                try:
                    raise ModelError("it is broken", hint="mend it", details=("a", "b"))
                except ModelError as error:
                    channel.send(failure_of(error))
            case ("bug",):
                try:
                    raise KeyError("x")
                except KeyError as error:
                    channel.send(failure_of(error))
            case ("close",):
                for path in list(Path("/proc/self/fd").iterdir()):
                    if path.is_fifo():
                        os.close(int(path.name))
                time.sleep(3600)
            case ("fork",):
                sleeper = subprocess.Popen(["sleep", "3600"], stderr=subprocess.DEVNULL)
                channel.send(sleeper.pid)


if __name__ == "__main__":
    main()
