"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Tests load onnxruntime themselves, not only through the oracle that asks for this.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# A busy machine is no failure: no example has a time limit.
settings.register_profile("edgekit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("edgekit")
