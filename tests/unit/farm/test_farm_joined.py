"""What another host says of its devices, as this one sees it; none of it is trusted."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import DeviceError
from edgekit.devices.keeper_messages import DeviceStatus, FarmStatus, Lease, Request
from edgekit.farm.hosts.file import make_host
from edgekit.farm.hosts.joined import JoinedHost

NOW = 1_700_000_000.0


def device(name: str = "desk", **changes: object) -> DeviceStatus:
    values: dict[str, Any] = {
        "name": name, "board": "rpi4", "key": "rpi4", "state": "busy", "since": 90.0, "reason": "",
        "again_at": None, "port": 4001, "sessions": 3, "faults": 0,
        "lease": Lease("ada@attic:1", "tuning", 160.0), "load": 0.5, "temperature": None,
    }  # fmt: skip
    return DeviceStatus(**{**values, **changes})


def news(*devices: DeviceStatus, now: float = 100.0, **ports: int) -> dict[str, Any]:
    status = FarmStatus(7, 50.0, now, "127.0.0.1:9190", devices)
    return {"state": "news", "status": asdict(status), "ports": ports}


def host() -> JoinedHost:
    return JoinedHost(make_host("lab@attic"), NOW)


def test_another_hosts_times_and_ports_become_ours() -> None:
    attic = host()
    assert attic.take(news(device(), desk=5005), NOW)
    (seen,) = attic.devices_now()
    assert (seen.host, seen.port, seen.since) == ("attic", 5005, NOW - 10)
    assert seen.lease is not None
    assert seen.lease.until == NOW + 60
    assert attic.status().state == "up"


def test_news_that_come_a_little_later_change_nothing() -> None:
    attic = host()
    attic.take(news(device(), desk=5005), NOW)
    before = attic.devices_now()
    attic.take(news(device(), now=101.0, desk=5005), NOW + 1.3)
    assert attic.devices_now() == before


def test_what_a_host_has_joined_itself_is_not_passed_on() -> None:
    attic = host()
    attic.take(news(device(), device("far", host="cellar")), NOW)
    assert [seen.name for seen in attic.devices_now()] == ["desk"]


def test_a_host_that_is_gone_takes_its_devices_and_answers_along() -> None:
    attic = host()
    attic.take(news(device(), desk=5005), NOW)
    attic.was_lost("no route", NOW)
    (seen,) = attic.devices_now()
    assert (seen.state, seen.port, seen.lease) == ("lost", 0, None)
    assert "attic is unreachable: no route" in seen.reason
    with pytest.raises(DeviceError, match="no route"):
        attic.ask(Request("drain", "desk"), lambda answer: None)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../x"},
        {"name": "<script>"},
        {"board": 7},
        {"state": "eaten"},
        {"since": "soon"},
        {"since": float("nan")},
        {"sessions": None},
        {"load": []},
        {"key": None},
        {"name": ["desk"]},
        {"lease": {"owner": "ada", "purpose": "x", "until": "later"}},
    ],
)
def test_what_makes_no_sense_is_a_lost_host_and_not_a_crash(changes: dict[str, object]) -> None:
    with pytest.raises(DeviceError):
        host().take(news(device(**changes)), NOW)


@pytest.mark.parametrize(
    "changes", [{"now": "now"}, {"now": None}, {"devices": [1]}, {"devices": 7}, {"hosts": [{}]}]
)
def test_nor_is_a_farm_that_makes_none(changes: dict[str, object]) -> None:
    message = news(device())
    with pytest.raises(DeviceError):
        host().take({**message, "status": {**message["status"], **changes}}, NOW)
    with pytest.raises(DeviceError):
        host().take({**message, "ports": {"desk": "here"}}, NOW)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON, JSON)
def test_whatever_is_said_it_is_understood_or_refused(status: object, ports: object) -> None:
    with pytest.raises(DeviceError):
        host().take({"state": "news", "status": status, "ports": ports}, NOW)
