"""The process that serves one device over TVM's RPC during a search.

It serves a device over SSH as `edgekit rpc serve` does, and this host with an agent. It reports
when the device is up, or why not, and restarts it after a failure. It ends with the search, and the
agent with it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import IO

from edgekit.base.child import Channel
from edgekit.base.children import NEUTRAL_FOLDER, NOTHING, Streams, start
from edgekit.base.errors import EdgekitError
from edgekit.base.events import Events, Warned
from edgekit.base.failure import failure_of
from edgekit.base.parent_process import parent_environment
from edgekit.devices.linux.agent_messages import AgentMessages, ServerState
from edgekit.rpc.protocol import LOOPBACK
from edgekit.rpc.server import ServePlan, Serving, serve_device
from edgekit.tuning.messages import LocalPlan, Trouble, Up

_SECONDS_BETWEEN_STARTS = 1.0


def main() -> None:
    channel = Channel()
    plan = channel.next()
    threading.Thread(target=_end_with_search, args=(channel,), daemon=True).start()
    try:
        if isinstance(plan, LocalPlan):
            _serve_local(plan, channel)
        else:
            assert isinstance(plan, ServePlan)
            _serve_remote(plan, channel)
    except EdgekitError as error:
        channel.send(failure_of(error))


def _serve_remote(plan: ServePlan, channel: Channel) -> None:
    def started(serving: Serving) -> None:
        channel.send(Up(serving.port, serving.measured_by))

    def report(event: object) -> None:
        if isinstance(event, Warned):
            channel.send(Trouble(event.text))

    serve_device(plan, started=started, events=Events(report))


def _serve_local(plan: LocalPlan, channel: Channel) -> None:
    threads = {} if plan.threads is None else {"TVM_NUM_THREADS": str(plan.threads)}
    while True:
        with start(
            [
                *(str(plan.agent), "serve", "--key", plan.key, "--end-with-parent"),
                *("--workspace", str(plan.workspace)),
                *("--tracker", f"{plan.tracker.host}:{plan.tracker.port}"),
                *("--custom-addr", LOOPBACK),
            ],
            folder=NEUTRAL_FOLDER,
            environment={**os.environ, **threads, **parent_environment()},
            streams=Streams(errors=NOTHING),
        ) as agent:
            assert agent.stdout is not None
            _follow(agent.stdout, channel)
            code = agent.wait()
        channel.send(Trouble(f"the agent of this host ended with {code} and is started again"))
        time.sleep(_SECONDS_BETWEEN_STARTS)


def _follow(lines: IO[bytes], channel: Channel) -> None:
    port, messages = 0, AgentMessages()
    for line in lines:
        message = messages.take(line.decode(errors="replace"))
        if not isinstance(message, ServerState):
            continue
        if message.state == "listening" and message.port is not None:
            port = message.port
        elif message.state == "registered":
            channel.send(Up(port, "hardware"))
        elif message.state == "turned away":
            channel.send(Trouble(message.reason))


def _end_with_search(channel: Channel) -> None:
    """End this process when the search closes its pipe."""
    channel.waiting(None)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
