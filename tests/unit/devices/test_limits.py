"""What a board prints of its limits is checked before anything is drawn of it."""

from __future__ import annotations

import pytest

from edgekit.base.errors import DeviceError
from edgekit.base.roof import Limits
from edgekit.devices.limits.measure import parse_limits

PRINTED = "float32 2.5e+11\nintegers 1e+12\nbytes 32000000000\n"


def test_the_three_rates_are_read() -> None:
    assert parse_limits(PRINTED, 2, "pi") == Limits(2, 2.5e11, 1e12, 3.2e10)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "float32 1e9\nintegers 1e9\n",
        PRINTED.replace("32000000000", "-1"),
        PRINTED.replace("32000000000", "inf"),
        PRINTED.replace("1e+12", "1e+300"),
        PRINTED.replace("1e+12", "0"),
        "\x1b[2J" * 100,
    ],
)
def test_anything_else_is_an_error_of_the_device(text: str) -> None:
    with pytest.raises(DeviceError, match="pi printed something else"):
        parse_limits(text, 2, "pi")
