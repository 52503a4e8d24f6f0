"""A server that does not answer is not reported as a missing file, and secrets of URLs are not shown."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from gnnloom.pipeline.sources.reading.files import UnreachableError, open_files
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.storage.errors import GnnloomError, InputError


def test_a_refused_connection_is_reported_as_such() -> None:
    pytest.importorskip("aiohttp")
    with socket.socket() as taken:
        # Bound and not listening: nobody else can answer there.
        taken.bind(("127.0.0.1", 0))
        location = f"http://127.0.0.1:{taken.getsockname()[1]}/edges.txt"
        with pytest.raises(UnreachableError, match=r"edges\.txt: the server cannot be reached \(Connection refused\)"):
            open_files([location])
    assert issubclass(UnreachableError, InputError)


class Server(SimpleHTTPRequestHandler):
    """Serves a table of edges, and a page of an error for anything else."""

    def do_GET(self) -> None:
        """Answer with the table, whatever the query."""
        body = b"source,target\n0,1\n1,2\n" if self.path.startswith("/edges.csv") else b"no"
        self.send_response(200 if body != b"no" else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name that the server calls

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    pytest.importorskip("aiohttp")
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_secrets_of_a_url_are_neither_shown_nor_stored(address: str) -> None:
    location = f"http://{address}/edges.csv?X-Signature=topsecret"
    edges = TextEdges.open([location])
    assert [list(chunk.source) for chunk in edges.read(edges.ranges()[0])] == [[0, 1]]
    shown = f"{edges.identity()} {edges.understood()} {edges.files}"
    assert f"http://{address}/edges.csv" in shown
    assert "topsecret" not in shown
    for refused in (f"http://{address}/other.csv?X-Signature=topsecret", f"http://{address}/o*.csv?key=topsecret"):
        with pytest.raises(GnnloomError) as error:
            open_files([refused])
        assert address in str(error.value)
        assert "topsecret" not in str(error.value)
