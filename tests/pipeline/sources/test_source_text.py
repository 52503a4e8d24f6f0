"""Text sources parse edges exactly, for any division into ranges and blocks, and name faulty lines."""

from __future__ import annotations

import gzip
import re
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.reading.lines import bad_line, whole_lines
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.vertex_data.vertex_files import open_vertex_files
from gnnloom.storage.errors import InputError, NotFoundError
from support.covering import examples, few_of
from support.opened_files import hearing_of_files

MAX_ID = 2**63 - 1


def read(source: TextEdges) -> tuple[list[tuple[int, int]], list[float]]:
    edges: list[tuple[int, int]] = []
    weights: list[float] = []
    for span in source.ranges():
        for chunk in source.read(span):
            edges += list(zip(chunk.source.tolist(), chunk.target.tolist(), strict=True))
            weights += [] if chunk.weight is None else chunk.weight.tolist()
    return edges, weights


def write(folder: Path, content: str | bytes, name: str = "edges.txt") -> str:
    path = folder / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(path)


def small_blocks(source: TextEdges, range_bytes: int, block_bytes: int) -> TextEdges:
    return replace(source, range_bytes=range_bytes, block_bytes=block_bytes)


IDS = st.one_of(st.integers(0, 30), st.integers(0, MAX_ID), st.integers(MAX_ID - 3, MAX_ID))
SEPARATORS = st.sampled_from(["\t", " ", ",", ", ", " , ", "  ", "\t,", " \t "])
ENDS = st.sampled_from(["\n", "\r\n", " \n", "\t\r\n", "\n\n", "\r\n \r\n", "\n# 1 2\n", "\n%% x\r\n"])


@st.composite
def text_files(draw: st.DrawFn, *, weighted: bool) -> tuple[str, list[tuple[int, int]], list[float]]:
    pairs = draw(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=30))
    numbers = st.floats(-(2.0**100), 2.0**100, allow_nan=False, width=32)
    weights = [draw(numbers) for _ in pairs] if weighted else []
    text = draw(st.sampled_from(["", "# head\n", "\n\n", "% a\r\n#b 1 2\n", "\ufeff", " "]))
    for number, (source, target) in enumerate(pairs):
        # As exports write numbers: in quotes, or as decimal numbers.
        before, after = draw(st.sampled_from([("", ""), ("", ""), ('"', '"'), ("", ".0"), ("", ".")]))
        after = after if source <= 2**53 or before else ""
        text += f"{before}{source}{after}{draw(SEPARATORS)}{target}"
        text += f"{draw(SEPARATORS)}{weights[number]!r}" if weighted else ""
        text += draw(ENDS) if number < len(pairs) - 1 else draw(st.sampled_from(["", "\n", "\r\n", " "]))
    return text, pairs, weights


@settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text_files(weighted=False), st.integers(1, 60), st.integers(1, 40), st.booleans())
def test_any_division_of_any_text_gives_the_same_edges(
    tmp_path: Path,
    content: tuple[str, list[tuple[int, int]], list[float]],
    range_bytes: int,
    block_bytes: int,
    compressed: bool,
) -> None:
    text, pairs, _ = content
    source = TextEdges.open([write(tmp_path, text, "edges.txt.gz" if compressed else "edges.txt")])
    assert read(small_blocks(source, range_bytes, block_bytes))[0] == pairs


@settings(deadline=None, max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text_files(weighted=True), st.integers(1, 60), st.integers(1, 40))
def test_weights_equal_those_that_python_reads(
    tmp_path: Path, content: tuple[str, list[tuple[int, int]], list[float]], range_bytes: int, block_bytes: int
) -> None:
    text, pairs, weights = content
    source = TextEdges.open([write(tmp_path, text)], weights=True)
    assert read(small_blocks(source, range_bytes, block_bytes)) == (pairs, weights)


def test_ids_beyond_float_precision_are_exact(tmp_path: Path) -> None:
    ids = [2**24 + 1, 2**31, 2**53 + 1, MAX_ID - 1, MAX_ID]
    text = "".join(f"{first} {second}\n" for first in ids for second in ids)
    assert read(TextEdges.open([write(tmp_path, text)]))[0] == [(first, second) for first in ids for second in ids]


@pytest.mark.parametrize(
    ("compressed", "line", "reason"),
    few_of(
        [False, True],
        [
            pytest.param("1 x2", "expected a vertex id"),
            pytest.param("one two", "expected a vertex id"),
            pytest.param("1.5 2", "expected a vertex id"),
            pytest.param("1 2.5", "expected a vertex id"),
            pytest.param("1 2e3", "expected a vertex id"),
            pytest.param("-1 2", "negative"),
            pytest.param("1 -2", "negative"),
            pytest.param("9223372036854775808 1", "below 2^63"),
            pytest.param("1 99999999999999999999999999", "below 2^63"),
            pytest.param("18446744073709551617 1", "below 2^63"),
            pytest.param("17", "found one"),
            pytest.param("17,", "found one"),
            pytest.param(",1 2", "expected a vertex id"),
            pytest.param("1,,2", "expected a vertex id"),
            pytest.param("1;2", "expected a vertex id"),
            pytest.param("1 2\r3 4", "expected a vertex id"),
            pytest.param("1 2 3", "more columns than expected"),
            pytest.param("1 2 # note", "more columns than expected"),
        ],
        together=1,
    ),
)
def test_a_line_that_is_not_an_edge_is_named(tmp_path: Path, line: str, reason: str, compressed: bool) -> None:
    text = "# comment\r\n" + "7 8\n" * 20 + line + "\n" + "9 10\n" * 20
    path = write(tmp_path, text, "bad.txt.gz" if compressed else "bad.txt")
    source = small_blocks(TextEdges.open([path]), range_bytes=50, block_bytes=13)
    with pytest.raises(InputError) as raised:
        read(source)
    message = str(raised.value)
    assert message.startswith(f"{path}, line 22: ")
    assert reason in message
    assert repr(line)[1:-1] in message


@pytest.mark.parametrize("weight", ["nan", "NaN", "inf", "-Infinity", "1e39", "4e38"])
def test_a_weight_that_is_not_finite_is_named(tmp_path: Path, weight: str) -> None:
    with pytest.raises(InputError, match=r"line 2: .*finite float32"):
        read(TextEdges.open([write(tmp_path, f"1 2 0.5\n1 3 {weight}\n")], weights=True))


@pytest.mark.parametrize("weight", ["x", "0.5x", "-", ".", "1e", "0.5 7", "--1", "1.2.3", "n", "in"])
def test_a_weight_that_is_not_a_number_is_named(tmp_path: Path, weight: str) -> None:
    with pytest.raises(InputError, match="line 2: "):
        read(TextEdges.open([write(tmp_path, f"1 2 0.5\n1 3 {weight}\n")], weights=True))


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 1:"):
        read(TextEdges.open([write(tmp_path, "1 2\n1 3 4\n")], weights=True))


def test_further_columns_are_ignored_only_on_request(tmp_path: Path) -> None:
    path = write(tmp_path, "1 2 0.5 1082040961\n3,4,1,x\n")
    with pytest.raises(InputError, match="--extra-columns"):
        read(TextEdges.open([path]))
    assert read(TextEdges.open([path], extra_columns=True))[0] == [(1, 2), (3, 4)]
    assert read(TextEdges.open([path], weights=True, extra_columns=True)) == ([(1, 2), (3, 4)], [0.5, 1.0])


def test_a_header_is_skipped_once_per_file(tmp_path: Path) -> None:
    first = write(tmp_path, "# made by hand\nsrc,dst\r\n1,2\n3,4\n", "a.csv")
    second = write(tmp_path, "\ufeffsrc,dst\n5,6\n", "b.csv.gz")
    source = small_blocks(TextEdges.open([first, second], header=True), range_bytes=16, block_bytes=5)
    assert read(source)[0] == [(1, 2), (3, 4), (5, 6)]
    with pytest.raises(InputError, match=r"a.csv, line 2: .*--header"):
        read(TextEdges.open([first], header=False))


def test_a_header_longer_than_a_range_loses_no_edge(tmp_path: Path) -> None:
    path = write(tmp_path, "# c\n" * 30 + "a_long_name_of_a_column,another\n1,2\n3,4\n5,6\n")
    for range_bytes in (5, 8, 40, 130, 150):
        source = small_blocks(TextEdges.open([path], header=True), range_bytes=range_bytes, block_bytes=7)
        assert read(source)[0] == [(1, 2), (3, 4), (5, 6)]


@pytest.mark.parametrize(
    ("content", "name"), few_of(["", "\n\n", "# only\n# comments\n", "\r\n"], ["empty.txt", "empty.txt.gz"], together=1)
)
def test_an_empty_file_is_an_error(tmp_path: Path, content: str, name: str) -> None:
    path = write(tmp_path, content, name)
    with pytest.raises(InputError, match=f"{re.escape(path)}: the file is empty"):
        read(TextEdges.open([path]))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"none\.txt:"):
        TextEdges.open([str(tmp_path / "none.txt")])
    with pytest.raises(NotFoundError, match="no file matches"):
        TextEdges.open([str(tmp_path / "*.none")])
    with pytest.raises(InputError, match="a folder"):
        TextEdges.open([str(tmp_path)])


@pytest.mark.parametrize("cut", [5, 15, 400, -1, -8])
def test_a_truncated_gzip_is_an_error(tmp_path: Path, cut: int) -> None:
    rng = np.random.default_rng(0)
    text = "\n".join(f"{a} {b}" for a, b in rng.integers(0, 1000, (2000, 2)))
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(gzip.compress(text.encode())[:cut])
    with pytest.raises(InputError, match=r"cut\.txt\.gz:"):
        read(TextEdges.open([str(path)]))


def test_a_file_that_is_not_gzip_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "plain.txt.gz"
    path.write_text("1 2\n")
    with pytest.raises(InputError, match="truncated or damaged gzip file"):
        read(TextEdges.open([str(path)]))


def test_a_binary_file_is_an_error_in_bounded_memory(tmp_path: Path) -> None:
    path = write(tmp_path, b"\x01" * (10 << 20))
    with pytest.raises(InputError, match=r"line 1:"):
        read(TextEdges.open([path]))


def test_several_files_and_globs_are_one_source(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        write(tmp_path, f"{number} {number}\n", f"part-{number}.txt")
    last = write(tmp_path, "9 9\n", "last.txt.gz")
    source = TextEdges.open([last, str(tmp_path / "part-*.txt")])
    assert read(source)[0] == [(9, 9), (0, 0), (1, 1), (2, 2)]


def test_a_name_with_glob_characters_is_a_file_first(tmp_path: Path) -> None:
    path = write(tmp_path, "1 2\n", "graph[1].txt")
    assert read(TextEdges.open([path]))[0] == [(1, 2)]


def test_urls_are_read_through_fsspec() -> None:
    open_file: Any = fsspec.open
    with open_file("memory://graphs/remote.txt.gz", "wb") as file:
        file.write(gzip.compress(b"1 2\n3 4"))
    with open_file("memory://graphs/remote.txt", "wb") as file:
        file.write(b"5 6\n")
    source = TextEdges.open(["memory://graphs/*.txt", "memory://graphs/remote.txt.gz"])
    assert read(source)[0] == [(5, 6), (1, 2), (3, 4)]
    with pytest.raises(NotFoundError, match=r"memory://graphs/none\.txt"):
        TextEdges.open(["memory://graphs/none.txt"])
    with pytest.raises(InputError, match="this kind of URL cannot be opened"):
        TextEdges.open(["nosuch://graphs/none.txt"])


def test_fingerprints_change_with_the_contents(tmp_path: Path) -> None:
    path = Path(write(tmp_path, "1 2\n" * 1000))
    before = open_files([str(path)])[0]
    assert open_files([str(path)])[0] == before
    path.write_text("1 2\n" * 500 + "1 3\n" + "1 2\n" * 499)
    assert open_files([str(path)])[0].fingerprint != before.fingerprint


def test_an_id_beyond_the_stated_number_of_vertices_is_named(tmp_path: Path) -> None:
    source = TextEdges.open([write(tmp_path, "0 1\n1 3\n")]).with_vertices(3)
    with pytest.raises(InputError, match="line 2:"):
        read(source)


def test_blocks_are_whole_lines(tmp_path: Path) -> None:
    text = "".join(f"{number}\n" for number in range(200))
    file = open_files([write(tmp_path, text)])[0]
    blocks = [(offset, block.tobytes().decode()) for offset, block in whole_lines(file, block_bytes=11)]
    assert all(block.endswith("\n") for _, block in blocks)
    assert "".join(block for _, block in blocks) == text
    assert [offset for offset, _ in blocks] == [text.index(block) for _, block in blocks]


def test_long_lines_are_shown_shortened(tmp_path: Path) -> None:
    file: SourceFile = open_files([write(tmp_path, "ok\n" + "z" * 5000 + "\n")])[0]
    message = str(bad_line(file, 3, "reason"))
    assert len(message) < 300
    assert message.endswith("zzz...'")


def test_real_graphs_have_their_published_number_of_edges(shared_data: Path) -> None:
    known = {"soc-Slashdot0902": (948464, 78303), "soc-Epinions1": (508837, 0), "ca-AstroPh": (197031, 59)}
    for name, (num_edges, num_loops) in known.items():
        source = TextEdges.open([str(shared_data / f"{name}.txt.gz")])
        chunks = [chunk for span in source.ranges() for chunk in source.read(span)]
        assert sum(len(chunk.source) for chunk in chunks) == num_edges
        assert sum(int((chunk.source == chunk.target).sum()) for chunk in chunks) == num_loops


class PlainHandler(SimpleHTTPRequestHandler):
    """A web server without range requests and without log output."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_web_servers_without_range_requests_are_read(tmp_path: Path) -> None:
    note = "# " + "".join(map(str, np.random.default_rng(5).integers(0, 10**9, 100_000))) + "\n"
    text = "1 2\n" + note * 8 + "3 4\n"
    for name in ("edges.txt", "edges.txt.gz"):
        write(tmp_path, text, name)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(PlainHandler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"http://127.0.0.1:{server.server_port}"
        source = TextEdges.open([f"{host}/edges.txt", f"{host}/edges.txt.gz"])
        found = read(source)[0]
        with pytest.raises(NotFoundError, match="there is no such file"):
            TextEdges.open([f"{host}/none.txt"])
        server.shutdown()
    assert found == [(1, 2), (3, 4)] * 2


TABLE = '# people\nwhen;user_a;score;user_b\n2020-01-01; 7 ;0.5;3\n\n2020-01-02;1;"2";7\n2020-01-03;3;4;1'


@pytest.mark.parametrize(
    ("name", "block_bytes"), few_of(["table.csv", "table.txt", "table.csv.gz"], [1, 30, 1 << 20], together=1)
)
def test_ids_are_read_from_named_columns(tmp_path: Path, name: str, block_bytes: int) -> None:
    path = write(tmp_path, TABLE, name)
    source = small_blocks(TextEdges.open([path], columns="user_a,user_b"), 40, block_bytes)
    assert read(source) == ([(7, 3), (1, 7), (3, 1)], [])
    source = TextEdges.open([path], columns=["user_b", "user_a"])
    assert read(source)[0] == [(3, 7), (7, 1), (1, 3)]
    assert source.identity() != TextEdges.open([path], columns="user_a,user_b").identity()


@pytest.mark.parametrize("name", ["triples.tsv", "triples.txt", "triples.tsv.gz"])
def test_columns_without_names_are_chosen_by_number(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, "1\t10\t2\t0.5\n3\t11\t1\t4\n", name)
    by_number = TextEdges.open([path], columns="1,3", header=False)
    assert read(by_number) == ([(1, 2), (3, 1)], [])
    assert by_number.identity() != TextEdges.open([path], columns="3,1", header=False).identity()
    assert read(TextEdges.open([path], columns="3,1,4", header=False)) == ([(2, 1), (1, 3)], [0.5, 4.0])


def test_names_are_read_from_columns_with_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "/m/02\tfilm, genre\tUnited Kingdom\r\nbob\tknows\t/m/02\r\n", "triples.txt")
    source = TextEdges.open([path], columns="1,3", header=False)
    assert source.begins_with_names()
    (chunk,) = (chunk for span in source.ranges() for chunk in source.read_names(span))
    assert (list(chunk.source), list(chunk.target)) == ([b"/m/02", b"bob"], [b"United Kingdom", b"/m/02"])


def test_weights_may_be_a_named_column(tmp_path: Path) -> None:
    path = write(tmp_path, "b w a\n1 0.5 2\n3 4 5\n")
    assert read(TextEdges.open([path], columns="a,b,w")) == ([(2, 1), (5, 3)], [0.5, 4.0])


@pytest.mark.parametrize("delimiter", ["|", ";", ":", "tab", "::", " | ", ";;;"])
def test_any_character_may_separate_fields(tmp_path: Path, delimiter: str) -> None:
    text = "source|target\n1|2\n3| 4\r\n".replace("|", "\t" if delimiter == "tab" else delimiter)
    source = TextEdges.open([write(tmp_path, text)], delimiter=delimiter)
    assert read(source)[0] == [(1, 2), (3, 4)]
    assert source.identity()["delimiter"] == delimiter


def test_semicolons_are_recognized(tmp_path: Path) -> None:
    for name in ("edges.csv", "edges.txt"):
        assert read(TextEdges.open([write(tmp_path, "source;target\n1;2\n3;4\n", name)]))[0] == [(1, 2), (3, 4)]
    named = TextEdges.open([write(tmp_path, '"Doe; Jane";bob\nbob;"a ""b"""\n', "names.csv")])
    assert named.begins_with_names()
    (chunk,) = (chunk for span in named.ranges() for chunk in named.read_names(span))
    assert (list(chunk.source), list(chunk.target)) == ([b"Doe; Jane", b"bob"], [b"bob", b'a "b"'])


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (TABLE, {"columns": "user_a,user_c"}, r"no column user_c; the first line has when, user_a, score, user_b"),
        (TABLE, {"columns": "user_a"}, r"columns 'user_a': expected src,dst\[,weight\]"),
        ("a,b,c\n", {"columns": "1,d"}, r"no column 1; the first line has a, b, c; .* `--no-header`"),
        ("a,b,c\n", {"columns": "1,4", "header": False}, r"no column 4; the first line has 1, 2, 3$"),
        ("1a2\n", {"delimiter": "a"}, r"delimiter 'a': expected up to 8 characters"),
        ("1|2\n", {"comment": "//"}, r"comment '//': expected one character"),
    ],
)
def test_columns_and_delimiters_that_do_not_fit_are_refused(
    tmp_path: Path, text: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        TextEdges.open([write(tmp_path, text, "t.csv")], **options)


@pytest.mark.parametrize(("line", "reason"), [("4;5", "found too few columns"), ("4;5;x", "expected a vertex id")])
def test_a_line_without_the_named_columns_is_named(tmp_path: Path, line: str, reason: str) -> None:
    source = TextEdges.open([write(tmp_path, f"a;b;c\n1;2;3\n\n{line}\n", "t.csv")], columns="a,c")
    with pytest.raises(InputError, match=f"line 4: {reason}"):
        read(source)


def test_first_lines_are_read_once(tmp_path: Path) -> None:
    edges, features = tmp_path / "e.csv", tmp_path / "x.csv"
    edges.write_text("src,dst,w\nann,bob,5\nbob,ann,7\n")
    features.write_text("a,b\n1,2\n3,4\n")
    opened: list[str] = []
    with hearing_of_files(lambda path, _mode, _flags: opened.append(str(path))):
        source = cast("TextEdges", open_edges("snap", [str(edges)], {"weights": True}))
        assert source.begins_with_names()
        assert [each.are_names for each in source.understood()] == [True]
        assert source.as_named().understood()
        rows = open_vertex_files(feature=str(features))
        assert rows.num_vertices() == 2
    # For its fingerprint and its first lines; a table of vertices twice, and to count its rows.
    assert (opened.count(str(edges)), opened.count(str(features))) == (2, 5)
    # Tasks get the source without what only the command shows.
    assert not source.__getstate__()["opened"]
