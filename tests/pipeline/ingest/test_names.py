"""Ids that are names: a graph of the ranks of the names, in bounded memory, with the same bytes however it is made."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.ingest.keys.arrays import KeyTable
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph, project_ingest
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.errors import CorruptError, InputError
from support.covering import examples

MIB = 1 << 20
OPTIONS = IngestOptions(self_loops="keep", ids="compact")
#: Many ranges of few names, in many files and pieces.
FEW_NAMES = Scratch(range_bytes=300, slice_bytes=1, gathered_bytes=2000, merged_bytes=2200)


def ingest(folder: Path, source: Any, options: IngestOptions = OPTIONS, scratch: Scratch = BESIDE) -> Graph:
    graph = ingest_graph(Catalog(folder).create("g"), source, options, InProcessCluster(scratch=scratch))
    graph.artifact.verify()
    return graph


def ingest_bytes(folder: Path, content: bytes, name: str = "edges.txt", **options: Any) -> Graph:
    (folder / name).write_bytes(content)
    return ingest(folder, open_edges(None, [str(folder / name)], options))


def edges_of(graph: Graph) -> dict[tuple[str, str], float]:
    """The stored edges by name, with their weights."""
    names, matrix = graph.original_name(), graph.to_scipy().tocoo()
    found = zip(*matrix.coords, matrix.data.tolist(), strict=True)
    return {(names[column], names[row]): value for row, column, value in found}


#: Names whose ends a person sees: not blank, and no joiners or byte order marks.
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0\ufeff"), min_size=1, max_size=12
).filter(lambda name: name.strip(" \u200b\u200c\u200d\u200e\u200f\u2060") == name == name.strip())


@pytest.mark.slow
@given(st.lists(st.tuples(NAMES | st.sampled_from("abc"), NAMES | st.sampled_from("bcd")), min_size=1, max_size=40))
@settings(max_examples=examples(40), deadline=None)
def test_the_vertices_of_the_graph_are_the_ranks_of_the_names(
    tmp_path_factory: pytest.TempPathFactory, edges: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("names")
    with (folder / "edges.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([("s", "t"), *edges])
    source = cast("Any", open_edges(None, [str(folder / "edges.csv")], {"header": True})).as_named()
    graph = ingest(folder, replace(source, range_bytes=100, block_bytes=50), scratch=FEW_NAMES)
    distinct = sorted({name for edge in edges for name in edge}, key=str.encode)
    rank = {name: number for number, name in enumerate(distinct)}
    rows, columns = [rank[target] for _, target in edges], [rank[origin] for origin, _ in edges]
    expected = scipy.sparse.coo_array((np.ones(len(edges)), (rows, columns)), shape=(len(rank),) * 2).tocsr()
    found = graph.to_scipy()
    assert graph.original_name() == distinct
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)


def random_edges(count: int, pool: int) -> list[tuple[str, str, float]]:
    rng = np.random.default_rng(count)
    ends = rng.integers(0, pool, (count, 2)).tolist()
    return [(f"v{a * 7919 % pool}", f"v{b}é"[: 3 + b % 5], c / 8) for c, (a, b) in enumerate(ends)]


def write_lines(path: Path, edges: list[tuple[str, str, float]]) -> str:
    path.write_text("".join(f"{a}\t{b}\t{weight}\n" for a, b, weight in edges), encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_bytes_are_the_same_for_any_number_of_files(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = random_edges(400, 160)
    whole = open_edges(None, [write_lines(tmp_path / "all.tsv", edges)], {"weights": True})
    files = [write_lines(tmp_path / f"{n}.tsv", edges[100 * n : 100 * (n + 1)]) for n in range(4)]
    pq.write_table(pa.table(dict(zip("abw", map(list, zip(*edges, strict=True)), strict=True))), tmp_path / "e.parquet")
    sources = {"files": open_edges(None, files, {"weights": True})}
    sources["parquet"] = open_edges(None, [str(tmp_path / "e.parquet")], {"weights": True})
    options = replace(OPTIONS, merge="first")
    digests = {ingest_graph(catalog.create("whole"), whole, options, InProcessCluster()).artifact.digest}
    cluster = InProcessCluster(scratch=FEW_NAMES)
    for name, source in sources.items():
        digests.add(ingest_graph(catalog.create(name), source, options, cluster).artifact.digest)
    assert len(digests) == 1
    first: dict[tuple[str, str], float] = {}
    for a, b, weight in edges:
        first.setdefault((a, b), weight)
    assert edges_of(catalog["files"].graph()) == first


def test_numbers_among_names_are_names_too(tmp_path: Path) -> None:
    graph = ingest_bytes(tmp_path, b"7 07\n-3 18446744073709551615\nann bob\n7 bob\n")
    assert graph.original_name() == ["-3", "07", "18446744073709551615", "7", "ann", "bob"]
    assert set(edges_of(graph)) == {("7", "07"), ("-3", "18446744073709551615"), ("ann", "bob"), ("7", "bob")}


def test_ids_that_are_all_numbers_stay_numbers(tmp_path: Path) -> None:
    graph = ingest_bytes(tmp_path, b'7 "7"\n9223372036854775807 1.0\n')
    assert not graph.has_names
    assert graph.original_id().tolist() == [1, 7, 9223372036854775807]


@pytest.mark.parametrize(
    ("name", "content", "edges"),
    [
        ("e.csv", 'New York,"a, ""b"""\n x ,y\r\n', {("New York", 'a, "b"'), ("x", "y")}),
        ("e.csv", "# c\n\n \t\n% d\n#tag,x\n'q',r,\n", {("'q'", "r")}),
        ("e.tsv", "a b\tc,d\n e\t f \n", {("a b", "c,d"), ("e", "f")}),
        ("e.txt", "a  b\n\tc\t d ", {("a", "b"), ("c", "d")}),
        ("e.txt", '"a b" c\n', {("a b", "c")}),
        ("e.txt", "﻿a b\n", {("a", "b")}),
        ("e", "a,b c\n", {("a", "b c")}),
    ],
)
def test_fields_are_cut_at_the_separator_of_the_file(tmp_path: Path, name: str, content: str, edges: Any) -> None:
    assert set(edges_of(ingest_bytes(tmp_path, content.encode(), name, header=False))) == edges


def test_compressed_text_of_names_is_read(tmp_path: Path) -> None:
    text = "".join(f"user{number},item{number % 7}\n" for number in range(100))
    compressed = pa.compress(text.encode(), codec="zstd", asbytes=True)
    graph = ingest_bytes(tmp_path, compressed, "edges.csv.zst")
    assert len(edges_of(graph)) == 100


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("e.csv", b"a,b\n,c\n", "line 2: a vertex id is missing"),
        ("e.csv", b'a,""\n', "line 1: a vertex id is missing"),
        ("e.csv", b"a,b\nb,NULL\n", "line 2: a vertex id is missing; .*--ids names"),
        ("e.csv", b"a,b\na\n", "line 2: expected two vertex names, found one"),
        ("e.csv", b'a,"b\n', "line 1: a double quote is opened and not closed"),
        ("e.csv", b'"a"b,c\n', "line 1: expected a separator or the end of the line"),
        ("e.csv", b"a,b,c\n", "line 1: found more columns than expected"),
        ("e.txt", b"a b\na " + b"x" * 65_537 + b"\n", "line 2: expected a vertex name of at most 65,536 bytes"),
        ("e.txt", b"a b\na \xff\n", "line 2: expected a name in UTF-8"),
        ("e.txt", b"a b\nc d\nd c\n", "line 1: .*--header.*--no-header"),
    ],
)
def test_a_line_that_is_not_an_edge_between_names_is_an_error(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        ingest_bytes(tmp_path, content, name)


def test_a_name_of_the_longest_length_is_kept(tmp_path: Path) -> None:
    graph = ingest_bytes(tmp_path, b"a " + b"x" * 65_536 + b"\n")
    assert graph.original_name() == ["a", "x" * 65_536]
    assert graph.original_name(1) == ["x" * 65_536]


def test_a_first_line_of_names_is_an_edge_if_the_caller_says_so(tmp_path: Path) -> None:
    graph = ingest_bytes(tmp_path, b"src dst\n1 2\n", header=False)
    assert graph.original_name() == ["1", "2", "dst", "src"]


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [([0, 1, 3, 6], None), ([0, 1, 1, 6], "vertex 1 has no name"), ([0, 1, 3, 5], r"from 0 to 5, not 0\.\.6")],
)
def test_verification_finds_names_that_do_not_fill_their_text(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offsets: list[int], reason: str | None
) -> None:
    read = KeyTable.read
    # Element k of the stored ends is the offset of name k + 1.
    ends = np.array(offsets[1:])
    monkeypatch.setattr(
        KeyTable, "read", lambda table, *given: read(table, *given) if given[1] else ends[given[2] : given[3]]
    )
    graph = ingest_bytes(tmp_path, b"a bb\nccc a\n")
    with pytest.raises(CorruptError, match=reason) if reason else nullcontext():
        check_artifact(catalog.create("g"), graph.artifact)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"a": ["x", None], "b": ["y", "z"]}, "column a, row 1: expected a value, found null"),
        ({"a": ["x", "y"], "b": ["", "z"]}, "column b, row 0: a vertex id is missing"),
        ({"a": [b"x", b"\xff"], "b": ["y", "z"]}, "column a, row 1: expected a name in UTF-8"),
        ({"a": ["x", "y" * 65_537], "b": ["y", "z"]}, "column a, row 1: expected a vertex name of at most"),
    ],
)
def test_parquet_text_that_is_not_a_name_is_an_error(tmp_path: Path, columns: Any, reason: str) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    with pytest.raises(InputError, match=reason):
        ingest_bytes(tmp_path, buffer.getvalue(), "e.parquet")


def test_parquet_mixes_columns_of_numbers_and_text(tmp_path: Path) -> None:
    columns = {"a": [1, -2], "b": pa.array(["x", "1"]).dictionary_encode()}
    pq.write_table(pa.table(columns), tmp_path / "e.parquet")
    graph = ingest(tmp_path, open_edges(None, [str(tmp_path / "e.parquet")]))
    assert set(edges_of(graph)) == {("1", "x"), ("-2", "1")}


@pytest.mark.parametrize(
    ("pairs", "edges"),
    [
        (np.array([[1, -2], [3, 1]]), {("1", "-2"), ("3", "1")}),
        (np.array([[1, 2**64 - 1], [3, 1]], np.uint64), {("1", "18446744073709551615"), ("3", "1")}),
        (np.array([["a", "bé"], ["b", "a"]]), {("a", "bé"), ("b", "a")}),
        (np.array([[b"a", b"b"], [b"b", b"a"]]), {("a", "b"), ("b", "a")}),
    ],
)
def test_numpy_pairs_of_any_numbers_or_text_can_be_names(tmp_path: Path, pairs: np.ndarray, edges: Any) -> None:
    np.savez(tmp_path / "e.npz", edge_index=pairs.T, weight=np.ones(2))
    source = open_edges(None, [str(tmp_path / "e.npz")], {"weights": True})
    if pairs.dtype.kind in "iu":
        with pytest.raises(InputError, match=r"edge [01]: expected a vertex id.*`--ids names`"):
            ingest(tmp_path, source)
    graph = ingest(tmp_path, source, replace(OPTIONS, ids="names" if pairs.dtype.kind in "iu" else "compact"))
    assert set(edges_of(graph)) == edges


def test_ids_below_a_stated_number_are_never_names(tmp_path: Path) -> None:
    pairs = {"row": np.array([0, -1]), "col": np.array([1, 2])}
    matrix: dict[str, Any] = {"format": b"coo", "shape": [3, 3], **pairs, "data": np.ones(2)}
    np.savez(tmp_path / "e.npz", **matrix)
    with pytest.raises(InputError, match="array row, edge 1:"):
        ingest(tmp_path, open_edges(None, [str(tmp_path / "e.npz")]))
    np.savez(tmp_path / "f.npz", **{**matrix, "shape": np.array(["3", "3"])})
    with pytest.raises(InputError, match="array shape: expected integers"):
        open_edges(None, [str(tmp_path / "f.npz")])


def test_names_are_refused_with_a_remedy_if_ids_are_kept(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("1 2\nbob 3\n")
    source = open_edges(None, [str(tmp_path / "edges.txt")])
    with pytest.raises(InputError, match=r"line 2: expected a vertex id .*`--ids names`"):
        ingest(tmp_path, source, IngestOptions())


def test_the_projection_counts_names(tmp_path: Path) -> None:
    source = open_edges(None, [write_lines(tmp_path / "e.tsv", random_edges(20_000, 3000))], {"weights": True})
    projection = project_ingest(source, OPTIONS, tmp_path, 1, 1 << 30)
    graph = ingest(tmp_path, source)
    assert projection.vertices == graph.num_vertices
    assert projection.edges == pytest.approx(20_000, rel=0.1)
    assert projection.spill_bytes > graph.artifact.measured["spill_bytes"] / 3


_MEASURED = """
import json, sys
from pathlib import Path
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.storage import Catalog
folder, memory = Path(sys.argv[1]), int(sys.argv[2])
source, options = open_edges(None, [str(folder / "edges.txt")], {"header": False}), IngestOptions(ids="compact")
graph = ingest_graph(Catalog(folder).create(f"m{memory}"), source, options, InProcessCluster(memory))
print(json.dumps({"digest": graph.artifact.digest, "peak": graph.artifact.measured["peak_memory"]}))
"""


@pytest.mark.long
def test_memory_stays_within_the_budget(tmp_path: Path) -> None:
    """120 MB of names of 40 bytes, nearly all distinct."""
    rng = np.random.default_rng(3)
    with (tmp_path / "edges.txt").open("w") as file:
        for _ in range(15):
            ends = rng.integers(0, 1 << 60, (100_000, 2)).tolist()
            file.writelines(
                f"https://example.org/item/{a:016x} https://example.org/user/{b % 999_999:016x}\n" for a, b in ends
            )
    found = {}
    for memory in (640 * MIB, 1024 * MIB):
        command = [sys.executable, "-c", _MEASURED, str(tmp_path), str(memory)]
        found[memory] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert found[memory]["peak"] <= memory
    assert len({each["digest"] for each in found.values()}) == 1
