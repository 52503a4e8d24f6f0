"""A server that does not answer is not reported as a missing file, and secrets of URLs are not shown."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner

from gnnloom.pipeline.sources.reading.files import UnreachableError, open_files
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.vertex_data.table_columns import split_location
from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.workflows.cli.main import cli


def test_a_refused_connection_is_reported_as_such() -> None:
    pytest.importorskip("aiohttp")
    with socket.socket() as taken:
        # Bound and not listening: nobody else can answer there.
        taken.bind(("127.0.0.1", 0))
        location = f"http://127.0.0.1:{taken.getsockname()[1]}/edges.txt"
        with pytest.raises(UnreachableError, match=r"edges\.txt:"):
            open_files([location])
    assert issubclass(UnreachableError, InputError)


class Server(SimpleHTTPRequestHandler):
    """Serves a table of edges, and a page of an error for anything else."""

    def do_GET(self) -> None:
        """Answer with the table, whatever the query."""
        if self.path.startswith("/cut"):
            self.send_response(200)
            # Without a length, the end of the connection is the end of the response.
            if self.command == "HEAD" or self.path.endswith("length"):
                self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"0,1\n" if self.command == "GET" else b"")
            return
        body = b"source,target\n0,1\n1,0\n" if self.path.startswith("/edges.csv?X-Signature=topsecret&") else b"no"
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


@pytest.mark.parametrize("path", ["cut?length", "cut"])
def test_a_response_that_is_cut_off_is_refused(address: str, path: str) -> None:
    edges = TextEdges.open([f"http://{address}/{path}"])
    with pytest.raises(InputError, match=rf"http://{address}/cut: ") as refused:
        list(edges.read(edges.ranges()[0]))
    assert "\n" not in str(refused.value)


def test_secrets_of_a_url_are_neither_shown_nor_stored(address: str) -> None:
    location = f"http://{address}/edges.csv?X-Signature=topsecret&at=2030-01-01T00:00:00Z"
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


def commands(root: Path, address: str) -> Iterator[list[str]]:
    """Commands that are given URLs with secrets, most of which end in an error of their own."""
    query = "?X-Signature=topsecret&at=2030-01-01T00:00:00Z"
    url, columns = f"http://{address}/edges.csv{query}", f"http://{address}/edges.csv:source,target{query}"
    other = f"http://{address}/other.csv{query}"
    yield ["ingest", "g", url]
    yield ["features", "g", "--feature", f"http://{address}/edges.csv:target{query}", "--by-id"]
    yield ["links", "g", "file", "--valid", url, "--test", url, "--format", "snap", "--keep-edges"]
    yield [
        "ingest",
        "t",
        "--relation",
        f"user,knows,user={columns}",
        "--vertices",
        f"user=http://{address}/edges.csv:source{query}",
    ]
    for given in (url, other):
        yield ["ingest", "h", given, "--columns", "source,nowhere"]
        yield from (["ingest", "h", given, "--format", name] for name in ("planetoid", "npz", "parquet", "pyg", "ogb"))
        yield ["features", "g", "--label", given, "--add"]
        yield ["features", "g", "--label", given, "--by-id", "--ids-file", given, "--add"]
        yield ["ingest", "u", "--relation", f"user,knows,user={given}:source,target"]
        yield ["links", "g", "file", "--test", given, "--values", "number"]


def test_no_command_stores_or_prints_a_secret_of_a_url(tmp_path: Path, address: str) -> None:
    codes = []
    for words in commands(tmp_path, f"ann:pass-word@{address}"):
        result = CliRunner().invoke(cli, ["--catalog", str(tmp_path / "catalog"), *words, "--workers", "0"])
        assert isinstance(result.exception, GnnloomError | None | SystemExit), words
        printed = f"{result.output} {result.exception}"
        assert "topsecret" not in printed, words
        assert "pass-word" not in printed, words
        codes.append(result.exit_code)
    assert codes[:2] == [0, 0]
    assert codes[3] == 0
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or re.search(b"topsecret|pass-word", path.read_bytes()) is None, path


def test_columns_stand_before_the_query_of_a_url() -> None:
    url = "https://host/t.csv:age,income?sig=a%3A7&at=2030-01-01T00:00:00Z"
    assert split_location(url) == ("https://host/t.csv?sig=a%3A7&at=2030-01-01T00:00:00Z", ("age", "income"))
    assert split_location("https://host/t.csv?at=12:30&sig=a") == ("https://host/t.csv?at=12:30&sig=a", ())
    with pytest.raises(InputError, match=r"https://host/t\.csv:age,income\?"):
        split_location("https://ann:topsecret@host/t.csv?sig=a:age,income")
