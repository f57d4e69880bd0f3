"""Devices of a search: boards or twins, never both."""

from __future__ import annotations

import pytest

from edgekit.base.errors import UsageError
from edgekit.tuning.tune_devices import are_emulated


def test_a_search_has_boards_or_twins() -> None:
    assert not are_emulated({"desk": False, "shelf": False})
    assert are_emulated({"rpi4": True})
    with pytest.raises(UsageError, match="rpi4 is emulated and desk is not") as caught:
        are_emulated({"desk": False, "rpi4": True})
    assert "edgekit farm drain rpi4" in str(caught.value.hint)
