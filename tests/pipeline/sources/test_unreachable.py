"""A server that does not answer is not reported as a missing file."""

from __future__ import annotations

import socket

import pytest

from gnnloom.pipeline.sources.reading.files import UnreachableError, open_files
from gnnloom.storage.errors import InputError


def test_a_refused_connection_is_reported_as_such() -> None:
    pytest.importorskip("aiohttp")
    with socket.socket() as taken:
        # Bound and not listening: nobody else can answer there.
        taken.bind(("127.0.0.1", 0))
        location = f"http://127.0.0.1:{taken.getsockname()[1]}/edges.txt"
        with pytest.raises(UnreachableError, match=r"edges\.txt: the server cannot be reached \(Connection refused\)"):
            open_files([location])
    assert issubclass(UnreachableError, InputError)
