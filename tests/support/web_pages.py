"""Looks for web servers in a tree of processes."""

from __future__ import annotations

import socket

import psutil

#: Seconds to wait for an answer.
_SECONDS = 2.0


def listening(process: psutil.Process) -> list[tuple[str, int]]:
    """Addresses on which a process and its descendants accept connections."""
    return [
        (entry.laddr.ip, entry.laddr.port)
        for each in (process, *process.children(recursive=True))
        for entry in each.net_connections("inet")
        if entry.status == psutil.CONN_LISTEN
    ]


def web_servers(process: psutil.Process) -> list[tuple[str, int]]:
    """Those of the addresses that answer a browser."""
    return [address for address in listening(process) if _answers(address)]


def _answers(address: tuple[str, int]) -> bool:
    with socket.create_connection(address, timeout=_SECONDS) as connection:
        try:
            connection.sendall(b"GET /json/identity.json HTTP/1.0\r\n\r\n")
            return connection.recv(5) == b"HTTP/"
        except OSError:
            return False
