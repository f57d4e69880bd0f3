"""The devices set how many candidates are compiled at the same time."""

from __future__ import annotations

from edgekit.tuning.pace import Pace


def test_slow_devices_need_few_compilers() -> None:
    pace = Pace(devices=4)
    for _ in range(100):
        pace.built(1.0)
        pace.ran(10.0)

    assert pace.most(width=1000) == 4 * 2 + 1


def test_fast_devices_need_as_many_compilers_as_keep_them_busy() -> None:
    pace = Pace(devices=64)
    for _ in range(100):
        pace.built(0.4)
        pace.ran(0.1)

    assert 64 * 4 < pace.most(width=1000) - 64 * 2 <= 64 * 4 * 1.3
    assert pace.most(width=8) == 64 * 2 + 8


def test_before_the_first_times_each_device_has_a_compiler() -> None:
    assert Pace(devices=3).most(width=100) == 3 * 2 + 3
    assert Pace(devices=3).most(width=0) == 3 * 2
