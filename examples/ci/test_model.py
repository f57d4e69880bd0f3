"""Tests of a model: its numbers on this machine, its speed on an emulated microcontroller.

docs/ci.md lists the fixtures and the options that choose another model, board or device.
"""

import pytest


def test_numbers(edgekit_bundle, edgekit_device, assert_verified):
    with edgekit_device.open(edgekit_bundle) as session:
        assert_verified(session.verify())


# The emulator counts instructions, which no busy runner changes.
@pytest.mark.edgekit(board="mps3-an547", twin=True)
def test_speed(edgekit_bundle, edgekit_device, assert_fast_enough):
    with edgekit_device.open(edgekit_bundle) as session:
        assert_fast_enough(session.bench(), within=0.02)
