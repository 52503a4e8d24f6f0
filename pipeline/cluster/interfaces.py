"""The network interface on which the ranks of a Dask cluster reach each other: named, or found by trying.

Uses sockets only, no MPI: the caller sends the offer of rank 0 to the other ranks, and combines their results.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gnnloom.storage.errors import InputError

#: Most interfaces of rank 0's machine that the others try.
MOST_OFFERED = 8
#: Seconds to wait for an address that may not answer.
_SECONDS = 3.0
_TOKEN_BYTES = 6
#: How the names of fast networks begin: InfiniBand, Slingshot, Omni-Path.
_FAST = ("ib", "hsn", "opa", "hfi")


def usable_interfaces() -> dict[str, str]:
    """Interfaces of this machine that have an IPv4 address, and their first such address."""
    import psutil  # noqa: PLC0415 - comes with distributed

    found = {
        name: [entry.address for entry in entries if _is_ipv4(entry.address)]
        for name, entries in psutil.net_if_addrs().items()
    }
    return {name: addresses[0] for name, addresses in found.items() if addresses}


def check_interface(name: str) -> str:
    """Return the interface of this name.

    Raises:
        InputError: this machine lacks it.
    """
    usable = usable_interfaces()
    if name not in usable:
        raise InputError(f"network interface {name!r}: not on {socket.gethostname()}, which has {', '.join(usable)}")
    return name


def loopback() -> str:
    """Return the name of this machine's loopback interface."""
    return next(name for name, address in usable_interfaces().items() if ipaddress.ip_address(address).is_loopback)


def _is_ipv4(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).version == 4
    except ValueError:
        return False


def _from_fastest(interfaces: Mapping[str, str]) -> list[str]:
    """Names of the interfaces other than the loopback, interfaces of fast networks first."""
    import psutil  # noqa: PLC0415 - comes with distributed

    speeds = {name: status.speed for name, status in psutil.net_if_stats().items() if status.isup}
    names = [name for name in speeds if name in interfaces and not ipaddress.ip_address(interfaces[name]).is_loopback]
    return sorted(names, key=lambda name: (not name.startswith(_FAST), -speeds[name], name))


@dataclass(frozen=True)
class Offer:
    """Addresses on which rank 0 answers with a token.

    Attributes:
        addresses: IPv4 address and port of each of rank 0's interfaces, the fastest first.
    """

    token: int
    addresses: tuple[tuple[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Offer:
        return cls(content["token"], tuple((host, port) for host, port in content["addresses"]))


class Beacon:
    """Answers with a token on every interface of this machine except the loopback, until :meth:`close`."""

    def __init__(self) -> None:
        interfaces = usable_interfaces()
        token = secrets.token_bytes(_TOKEN_BYTES)
        offered = _from_fastest(interfaces)[:MOST_OFFERED]
        # A backlog for many ranks that connect at once.
        self._sockets = [socket.create_server((interfaces[name], 0), backlog=1024) for name in offered]
        self.offer = Offer(int.from_bytes(token), tuple(each.getsockname()[:2] for each in self._sockets))
        for each in self._sockets:
            threading.Thread(target=_answer, args=(each, token), daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        for each in self._sockets:
            # Wakes the thread that waits for a connection, which closing alone does not.
            each.shutdown(socket.SHUT_RDWR)
            each.close()


def _answer(listening: socket.socket, token: bytes) -> None:
    while True:
        try:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(token)
        except OSError:
            # A rank that gave up, or the end.
            if listening.fileno() < 0:
                return


def reached(offer: Offer) -> list[str | None]:
    """Try every address of an offer.

    Returns:
        (MOST_OFFERED,) name of the interface of this machine that reaches each address, or None.
    """
    names = {address: name for name, address in usable_interfaces().items()}
    found = [names.get(_own_address(address, offer.token)) for address in offer.addresses]
    return [*found, *[None] * (MOST_OFFERED - len(found))]


def _own_address(address: tuple[str, int], token: int) -> str:
    """Address of this machine that reaches rank 0 at ``address``; empty if none does."""
    try:
        with socket.create_connection(address, timeout=_SECONDS) as connection:
            connection.settimeout(_SECONDS)
            with connection.makefile("rb") as stream:
                # Bridges for containers have the same address on every machine: another program may answer there.
                told = stream.read(_TOKEN_BYTES)
            return str(connection.getsockname()[0]) if told == token.to_bytes(_TOKEN_BYTES) else ""
    except OSError:
        return ""


def none_reached() -> InputError:
    """The error if no interface reaches rank 0's machine from all others."""
    return InputError(
        "no network interface reaches the machine of rank 0 from all others: name the one between them in the recipe"
        " ([cluster] interface) or with --set cluster.interface=NAME; this machine has"
        f" {', '.join(usable_interfaces())}"
    )
