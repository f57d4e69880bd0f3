"""What holds for every test."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# Tests load onnxruntime themselves, not only through the oracle that asks for this.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# What tests measure is nothing that anybody wants to find among their own results.
os.environ.setdefault("EDGEKIT_STORE", "off")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every program
# that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# nohup does the same with what a terminal says when it goes.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine is no failure: no example has a time limit.
settings.register_profile("edgekit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("edgekit")
