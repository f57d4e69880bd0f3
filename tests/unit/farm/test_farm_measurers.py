"""A farm's device says when it comes up whether it is emulated."""

from __future__ import annotations

import pytest

from edgekit.farm.health import Health
from edgekit.farm.own_device import OwnDevice
from edgekit.farm.plan import FarmPlan, Member


@pytest.mark.parametrize("is_twin", [False, True])
@pytest.mark.parametrize("says", [False, True])
def test_an_emulated_machine_that_was_added_as_a_board_is_emulated(
    is_twin: bool, says: bool
) -> None:
    device = OwnDevice(Member("desk", "rpi4", "rpi4", is_twin), FarmPlan(()), Health())
    assert device.status(lambda owner: 0).is_emulated is (is_twin or None)
    device.take({"state": "up", "port": 4000, "is_emulated": says}, now=1.0)
    assert device.status(lambda owner: 0).is_emulated is (is_twin or says)
