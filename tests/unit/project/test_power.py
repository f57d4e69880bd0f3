"""The key `power` of a device's entry: what is run for it, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import UsageError
from edgekit.project.power import is_power, parse_power


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("usb:1-1.4/3", "uhubctl -l 1-1.4 -p 3 -a off"),
        ("snmp:apc@pdu.lab/4", "snmpset pdu.lab .1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.4 i 2"),
        ("snmp:raritan@10.0.0.9/12", "snmpset 10.0.0.9 .1.3.6.1.4.1.13742.6.4.1.2.1.2.1.12 i 0"),
        ("labgrid", "labgrid-client -p desk power off"),
    ],
)
def test_a_switch_is_a_program_and_its_arguments(text: str, command: str) -> None:
    assert " ".join(parse_power(text, "desk").command("off")) == command


def test_a_command_is_given_the_action_and_is_not_put_together_from_it() -> None:
    assert parse_power("sh:outlet 3 $1").command("on") == ("sh", "-c", "outlet 3 $1", "sh", "on")


@given(st.text(max_size=40))
def test_other_text_is_refused_and_nothing_becomes_an_option(text: str) -> None:
    for form in ("usb:{}/1", "snmp:apc@{}/1", "snmp:{}@host/1", "{}"):
        tried = form.format(text)
        if not is_power(tried):
            with pytest.raises(UsageError):
                parse_power(tried)
        elif not tried.startswith("sh:") and tried != "labgrid":
            words = parse_power(tried).command("on")
            assert not words[2 if words[0] == "uhubctl" else 1].startswith("-")
