"""The ranks of a cluster find the network interface that reaches the first rank, or say that there is none."""

from __future__ import annotations

import dataclasses
import json

import pytest

from gnnloom.pipeline.cluster import interfaces
from gnnloom.pipeline.cluster.interfaces import Beacon, Offer, check_interface, loopback, none_reached, reached
from gnnloom.storage.errors import InputError


@pytest.fixture
def beacon(monkeypatch: pytest.MonkeyPatch) -> Beacon:
    # The loopback stands for a network between machines, which a machine without a network does not have.
    monkeypatch.setattr(interfaces, "_from_fastest", lambda found: [next(iter(found))])
    monkeypatch.setattr(interfaces, "usable_interfaces", lambda: {"ib0": "127.0.0.1"})
    return Beacon()


def test_the_interface_that_reaches_the_first_rank_is_found(beacon: Beacon) -> None:
    sent = Offer.from_json(json.loads(json.dumps(beacon.offer.to_json())))
    assert sent == beacon.offer
    assert reached(sent)[:2] == ["ib0", None]
    beacon.close()
    assert reached(sent)[0] is None


def test_another_program_at_the_same_address_is_not_the_first_rank(beacon: Beacon) -> None:
    # Bridges of containers have one address on all machines.
    other = dataclasses.replace(beacon.offer, token=beacon.offer.token ^ 1)
    assert reached(other)[0] is None
    beacon.close()


def test_fast_networks_come_first_and_the_loopback_never() -> None:
    class Status:
        def __init__(self, speed: int, isup: bool = True) -> None:
            self.speed, self.isup = speed, isup

    states = {"lo": Status(0), "eth0": Status(1000), "eth1": Status(10_000), "ib0": Status(0), "down": Status(9, False)}
    addresses = dict.fromkeys(states, "10.0.0.1") | {"lo": "127.0.0.1"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("psutil.net_if_stats", lambda: states)
        assert interfaces._from_fastest(addresses) == ["ib0", "eth1", "eth0"]


def test_an_interface_that_is_missing_is_named_with_those_that_exist() -> None:
    assert check_interface(loopback()) == loopback()
    with pytest.raises(InputError, match=f"network interface 'ib7': not on .*, which has .*{loopback()}"):
        check_interface("ib7")
    assert "--set cluster.interface=NAME" in str(none_reached())
