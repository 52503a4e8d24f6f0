"""Truncated, damaged or hostile files give one error that names the file and the position, and run nothing."""

from __future__ import annotations

import gzip
import itertools
import os
import pickle  # noqa: TID251 - creates hostile pickles
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import torch

from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.binary.restricted_pickle import read_pickle
from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.sources.matrix_market import MatrixMarketEdges
from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.storage.errors import InputError, NotFoundError
from support.covering import few_of
from support.edge_formats import FORMATS

U, V = np.array([0, 1, 2, 3, 4]), np.array([1, 2, 3, 4, 0])


def read(source: EdgeSource) -> list[tuple[int, int]]:
    chunks = [chunk for span in source.ranges() for chunk in source.read(span)]
    return [pair for chunk in chunks for pair in zip(chunk.source.tolist(), chunk.target.tolist(), strict=True)]


def fails(path: Path, reason: str, format_name: str | None = None, **options: Any) -> None:
    with pytest.raises(InputError, match=reason) as raised:
        read(open_edges(format_name, [str(path)], options))
    assert path.name in str(raised.value)
    assert "\n" not in str(raised.value)


# Parquet


def test_a_flipped_bit_of_a_parquet_footer_ends_no_process(tmp_path: Path) -> None:
    path = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"src": pa.array(U), "dst": pa.array(V)}), path)
    raw = path.read_bytes()
    # How often a value of the last column may occur, which the sizes in its statistics then contradict.
    assert raw.count(b"\x25\x02\x18\x03dst") == 1
    path.write_bytes(raw.replace(b"\x25\x02\x18\x03dst", b"\x25\x0a\x18\x03dst"))
    fails(path, "not a Parquet file, truncated, damaged")


def test_parquet_files_with_pictures_beside_the_ids_are_read(tmp_path: Path) -> None:
    pictures = [np.random.default_rng(number).bytes(4 << 20) for number in range(5)]
    table = pa.table({"src": [f"v{each}" for each in U], "dst": [f"v{each}" for each in V], "picture": pictures})
    pq.write_table(table, tmp_path / "edges.parquet")
    opened = ParquetTable.open(open_files([str(tmp_path / "edges.parquet")])[0])
    ((_, (source, _)),) = opened.read_arrow(["src", "dst"], [0], 10)
    assert source.to_pylist() == [f"v{each}" for each in U]


@pytest.mark.long
def test_every_bit_of_a_parquet_footer_may_be_flipped(tmp_path: Path) -> None:
    path = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"src": pa.array(U), "dst": pa.array(V), "name": [str(number) for number in U]}), path)
    raw, refused = path.read_bytes(), 0
    size = int.from_bytes(raw[-8:-4], "little")
    for place, bit in itertools.product(range(len(raw) - 8 - size, len(raw) - 8), range(8)):
        damaged = bytearray(raw)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            table = ParquetTable.open(open_files([str(path)])[0])
            list(table.read_arrow(table.names, range(len(table.group_rows)), 10, nulls=True))
        except InputError:
            refused += 1
    assert refused > size


# Compressed text


@pytest.mark.parametrize("kept", [3, 40, -1])
def test_a_truncated_zst_file_is_an_error(tmp_path: Path, kept: int) -> None:
    text = "".join(f"{number} {number + 7}\n" for number in range(50_000))
    path = tmp_path / "edges.txt.zst"
    path.write_bytes(pa.compress(text.encode(), codec="zstd", asbytes=True)[:kept])
    fails(path, "truncated or damaged zstd")


def test_all_frames_of_a_zst_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt.zst"
    path.write_bytes(b"".join(pa.compress(text, codec="zstd", asbytes=True) for text in (b"1 2\n3", b" 4\n")))
    assert read(open_edges(None, [str(path)])) == [(1, 2), (3, 4)]
    path.write_bytes(b"1 2\n")
    fails(path, "truncated or damaged zstd")


def test_the_error_for_a_csv_with_names_says_how_to_read_it(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("src,dst,weight\n1,2,0.5\n3,4,1\n")
    fails(path, r"edges\.csv, line 1: .*`--header`", header=False)
    fails(path, r"line 2: .*`--weights`", header=True)
    (chunk,) = (
        chunk
        for source in [open_edges(None, [str(path)], {"header": True, "weights": True})]
        for span in source.ranges()
        for chunk in source.read(span)
    )
    assert chunk.weight is not None
    assert chunk.weight.tolist() == [0.5, 1]


# Parquet


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"a": [1, None, 3], "b": [1, 2, 3]}, "column a, row 1: expected a value, found null"),
        ({"a": ["1", "x"], "b": [1, 2]}, "column a, row 1: expected a vertex id.*--ids names"),
        ({"a": [1.0, 2.0], "b": [1, 2]}, "column a: expected integers or text, found double"),
        ({"a": [True, False], "b": [1, 2]}, "column a: expected integers or text, found bool"),
        ({"a": [1, 2, 3], "b": [4, 5, -6]}, "column b, row 2: expected a vertex id, found -6"),
        ({"a": pa.array([1, 2**63], pa.uint64()), "b": [1, 2]}, "row 1: expected a vertex id below"),
        ({"a": [[1], [2]], "b": [1, 2]}, "column a: expected integers or text, found list"),
        ({"a": [1]}, "expected columns of sources and targets, found a"),
        ({"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())}, "no edges"),
    ],
)
def test_parquet_without_edges_is_named(tmp_path: Path, columns: dict[str, Any], reason: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "bad.parquet", row_group_size=2)
    fails(tmp_path / "bad.parquet", reason)


@pytest.mark.parametrize(
    "cells", [[[0, 1, 5], [1, 0, 0], [5, 0, 0]], [[0, 1, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]]
)
@pytest.mark.parametrize("named", [False, True])
def test_a_matrix_in_a_table_is_not_read_as_edges(tmp_path: Path, cells: list[list[int]], named: bool) -> None:
    names = list("abcd"[: len(cells)])
    frame = pd.DataFrame(cells, index=names if named else None, columns=names, dtype=float if named else int)
    frame.to_parquet(tmp_path / "m.parquet")
    with pytest.raises(InputError, match=r"m\.parquet: a matrix .*--columns a,b|m\.parquet, column a: .*integers"):
        open_edges(None, [str(tmp_path / "m.parquet")])


def test_three_weighted_edges_in_a_table_are_edges(tmp_path: Path) -> None:
    pd.DataFrame([[0, 1, 2], [1, 2, 3], [2, 0, 4]], columns=list("abc")).to_parquet(tmp_path / "e.parquet")
    edges = open_edges(None, [str(tmp_path / "e.parquet")])
    chunks = [chunk for span in edges.ranges() for chunk in edges.read(span)]
    assert [[*chunk.source, *chunk.target] for chunk in chunks] == [[0, 1, 2, 1, 2, 0]]


def test_parquet_columns_are_chosen_by_name(tmp_path: Path) -> None:
    table = pa.table({"time": ["x", "y"], "to": [1, 2], "from": [3, 4], "w": [0.5, np.nan]})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read(open_edges(None, [str(tmp_path / "t.parquet")], {"columns": "from,to"})) == [(3, 1), (4, 2)]
    fails(tmp_path / "t.parquet", "row 1: expected a finite float32 weight, found nan", columns="from,to,w")
    fails(tmp_path / "t.parquet", "expected one column 'source'; the columns are time, to", columns="source,to")
    with pytest.raises(InputError, match="expected src,dst"):
        open_edges(None, [str(tmp_path / "t.parquet")], {"columns": "from"})


def test_parquet_is_read_by_row_groups(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": np.arange(100), "b": np.arange(100) + 1}), tmp_path / "t.parquet", row_group_size=10)
    source: Any = open_edges(None, [str(tmp_path / "t.parquet")])
    small = type(source)(source.tables, source.columns, range_edges=25, block_edges=3)
    assert [(span.start, span.stop) for span in small.ranges()] == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]
    assert read(small) == [(number, number + 1) for number in range(100)]


# Text of other formats


MTX = "%%MatrixMarket matrix coordinate real general\n% note\n\n3 3 2\n1 2 0.5\n3 1 2\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("%%MatrixMarket", "%%MatrixMarkt"), "line 1: expected '%%MatrixMarket"),
        (("coordinate", "array"), "the matrix is 'array'; expected coordinate"),
        (("real", "complex"), "the matrix is 'complex'; expected pattern or real or integer"),
        (("general", "hermitian"), "the matrix is 'hermitian'"),
        (("3 3 2", "3 4 2"), r"a matrix of 3 x 4.*`--relation"),
        (("3 3 2", "3 3"), "line 4: expected the numbers of rows"),
        (("3 3 2", "3 3 x"), "line 4: expected the numbers of rows"),
        (("3 3 2", "3 3 3"), "2 entries, the header states 3"),
        (("3 3 2", "3 3 1"), "2 entries, the header states 1"),
        (("3 3 2", "3 3 0"), "no edges"),
        (("3 1 2", "4 1 2"), "line 6: the vertex id is not below"),
        (("3 1 2", "0 1 2"), "line 6: the id 0; ids of this format start from 1"),
        (("3 1 2", "-1 1 2"), "line 6: .*negative"),
        (("3 1 2", "3 1 two"), "line 6: expected a number"),
        (("3 1 2", "3"), "line 6: expected two vertex ids"),
        ((MTX, ""), "line 1: expected"),
    ],
)
def test_matrix_market_files_that_cannot_be_used_are_named(
    tmp_path: Path, change: tuple[str, str], reason: str
) -> None:
    path = tmp_path / "bad.mtx"
    path.write_text(MTX.replace(*change))
    fails(path, reason, weights=True)


def test_a_pattern_has_no_weights(tmp_path: Path) -> None:
    path = tmp_path / "p.mtx"
    path.write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n")
    fails(path, "a pattern has no weights", weights=True)
    assert MatrixMarketEdges.open([str(path)]).num_vertices() == 3


METIS = "% note\n3 2 001\n2 5\n1 5 3 6\n2 6\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("3 2 001", "3"), "line 2: expected the numbers of vertices and edges"),
        (("3 2 001", "3 2 7"), "line 2: expected a format"),
        (("3 2 001", "3 0 001"), "no edges"),
        (("3 2 001", "3 3 001"), "2 edges, the header states 3"),
        (("3 2 001", "4 2 001"), "3 lines, expected one for each of 4"),
        (("3 2 001", "2 2 001"), "line 4: the vertex id is not below"),
        (("2 6\n", "2 6\n1 1\n"), "line 6: found too many columns"),
        (("2 6\n", "\n"), "not every edge is in the lines of both"),
        (("2 6\n", "0 6\n"), "line 5: the vertex id is not below"),
        (("2 6\n", "2\n"), "line 5: found too few columns"),
        (("2 6\n", "2 6.5\n"), "the line of vertex 2 has 3"),
        (("2 6\n", "2 6.5.\n"), "line 5: expected a number"),
        (("2 6\n", "2 1e40\n"), "line 5: expected a finite float32"),
        (("2 6\n", "2. 6\n"), "line 5: expected an integer"),
        (("2 6\n", "-2 6\n"), "line 5: .*negative"),
        (("2 6\n", "99999999999999999999 6\n"), "line 5: .*larger"),
    ],
)
def test_metis_files_that_cannot_be_used_are_named(tmp_path: Path, change: tuple[str, str], reason: str) -> None:
    path = tmp_path / "bad.graph"
    path.write_text(METIS)
    assert read(open_edges(None, [str(path)], {"weights": True})) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    path.write_text(METIS.replace(*change))
    fails(path, reason, weights=True)


def test_a_metis_file_without_weights_is_named(tmp_path: Path) -> None:
    (tmp_path / "g.graph").write_text("2 1\n2\n1\n")
    fails(tmp_path / "g.graph", "the file has no edge weights", weights=True)


# Binary


def test_graph500_files_of_another_size_or_form_are_named(tmp_path: Path) -> None:
    path = tmp_path / "edges.bin"
    np.array([1, 2, 3], "<i8").tofile(path)
    fails(path, "24 bytes; expected a multiple of 16", "graph500")
    np.array([1, 2, 3, -4], "<i8").tofile(path)
    fails(path, r"edge 1: expected vertex ids, found \[3, -4\]", "graph500")
    np.array([1, 2, 0, 1, 2, 0xFFFF0000], "<u4").tofile(path)
    fails(path, "edge 1: expected vertex ids", "graph500", packed=True)
    path.write_bytes(b"")
    fails(path, "0 bytes; expected", "graph500")
    (tmp_path / "edges.bin.gz").write_bytes(gzip.compress(bytes(32)))
    fails(tmp_path / "edges.bin.gz", "decompress it first", "graph500")


def is_noticed(format_name: str, location: str, options: dict[str, Any]) -> bool:
    """Whether reading fails or, as for binary pairs cut between two of them, gives fewer edges."""
    try:
        return len(read(open_edges(format_name, [location], options))) < len(U)
    except (InputError, NotFoundError):
        return True


@pytest.mark.parametrize("name", ["parquet", "mtx", "dimacs", "ogb-binary", "pyg", "planetoid", "graph500", "zst"])
def test_a_file_truncated_anywhere_is_an_error(tmp_path: Path, name: str) -> None:
    format_name, options, _, _, write = FORMATS[name]
    location = write(tmp_path, U, V, None, 6)
    files = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    for path in files:
        whole = path.read_bytes()
        if path.name.endswith((".x", ".y", ".tx", ".ty", ".ally", ".index")):
            continue  # the edges do not need it, or it is text with one number
        for kept in range(0, len(whole) - 1, max(1, len(whole) // 12)):
            path.write_bytes(whole[:kept])
            assert is_noticed(format_name, location, options), (path.name, kept)
        path.write_bytes(whole)
    assert sorted(read(open_edges(format_name, [location], options))) == sorted(zip(U, V, strict=True))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"edge_index": np.array([[0, 1], [1, 9]])}, "edge 1: vertex 9 is not below the stated number of vertices, 5"),
        ({"edge_index": np.array([[0.5, 1], [1, 2]])}, "expected integers, found float64"),
        ({"num_edges_list": np.array([3])}, "2 edges, num_edges_list states 3"),
        ({"num_nodes_list": np.array([3, 4])}, "expected one number for one graph"),
        ({"edge_index": np.array([[0, None], [1, 2]])}, "an array of Python objects"),
    ],
)
def test_inconsistent_binary_ogb_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    good = {"edge_index": np.array([[0, 1], [1, 2]]), "num_nodes_list": [5], "num_edges_list": [2]}
    (tmp_path / "raw").mkdir()
    np.savez(tmp_path / "raw" / "data.npz", **{**good, **change})
    with pytest.raises(InputError, match=reason) as raised:
        read(open_edges(None, [str(tmp_path)]))
    assert "data.npz" in str(raised.value)


# Pickles


class Attack:
    """Runs a command when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def attacks(target: Path) -> list[Any]:
    return [
        Attack(os.system, f"touch {target}"),
        Attack(eval, f"open({str(target)!r}, 'w')"),
        Attack(Path.touch, target),
        Attack(getattr, "x", "upper"),
    ]


@pytest.mark.parametrize(("number", "protocol"), few_of(range(4), [0, 2, 5], together=1))
def test_a_hostile_pickle_runs_nothing_and_is_named(tmp_path: Path, number: int, protocol: int) -> None:
    target = tmp_path / "made"
    hostile = {"edge_index": torch.tensor([[0], [1]]), "extra": attacks(target)[number]}
    torch.save(hostile, tmp_path / "data.pt", pickle_protocol=max(2, protocol))
    fails(tmp_path / "data.pt", r"the pickle asks for (posix\.system|builtins\.(eval|getattr)|pathlib\.)")
    FORMATS["planetoid"][4](tmp_path, U, V, None, 6)
    (tmp_path / "ind.tiny.graph").write_bytes(pickle.dumps({0: attacks(target)[number]}, protocol))
    with pytest.raises(InputError, match=r"ind\.tiny\.graph: the pickle asks for (posix|builtins|pathlib)"):
        read(open_edges("planetoid", [str(tmp_path)]))
    assert not target.exists()


def test_allowed_names_do_nothing_when_called(tmp_path: Path) -> None:
    """Allowed names stand for records: calling one creates a record, and setting its state fills it."""
    program = b"cnumpy\ndtype\n(S'O8'\ntR."
    (tmp_path / "p").write_bytes(program)
    with (tmp_path / "p").open("rb") as stream:
        found = read_pickle(stream, "p", {"numpy.dtype"})
    assert (found.name, found.args) == ("numpy.dtype", ("O8",))
    (tmp_path / "p").write_bytes(b"\x80\x04\x8c\x02os\x8c\x08\x1b[31mred\x93.")
    with (tmp_path / "p").open("rb") as stream, pytest.raises(InputError, match=r"asks for 'os\.\\x1b\[31mred'"):
        read_pickle(stream, "p", {"numpy.dtype"})
    for name in (b"numpy\ndtype.__init__.__globals__", b"numpy.dtype\n__init__"):
        (tmp_path / "p").write_bytes(b"c" + name + b"\n(tR.")
        with (tmp_path / "p").open("rb") as stream, pytest.raises(InputError, match="the pickle asks for"):
            read_pickle(stream, "p", {"numpy.dtype"})


def test_a_pickle_cannot_allocate_much_memory(tmp_path: Path) -> None:
    FORMATS["planetoid"][4](tmp_path, U, V, None, 6)
    for content in (
        b"\x80\x02]r\xff\xff\xff\x7f.",
        b"\x80\x05\x96" + b"\xff" * 7 + b"\x0f.",
        b"(" * 100_000 + b"l." * 9,
    ):
        (tmp_path / "ind.tiny.graph").write_bytes(content)
        with pytest.raises(InputError, match=r"ind\.tiny\.graph: "):
            read(open_edges("planetoid", [str(tmp_path)]))


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x05", b"(lp0\n", b"I1\nI2\n.." * 3, b"\x80\x02]q\x00h\x09."])
def test_files_that_are_not_pickles_are_errors(tmp_path: Path, content: bytes) -> None:
    FORMATS["planetoid"][4](tmp_path, U, V, None, 6)
    (tmp_path / "ind.tiny.graph").write_bytes(content)
    with pytest.raises(InputError, match=r"ind\.tiny\.graph: "):
        read(open_edges("planetoid", [str(tmp_path)]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"graph": {0: [1, -1]}}, "vertex 0: expected a list of vertices below 6"),
        ({"graph": {0: [6]}}, "vertex 0: expected a list"),
        ({"graph": {"a": [1]}}, "vertex 'a': expected a list"),
        ({"graph": [1, 2]}, "expected a dict"),
        ({"allx": np.array([[None]])}, "not an array or matrix"),
        ({"allx": np.zeros(3)}, "expected a matrix"),
        ({"test.index": "9\n9\n"}, "expected distinct vertices after"),
        ({"test.index": "1\n"}, "expected distinct vertices after"),
        ({"test.index": "\n"}, "found none"),
    ],
)
def test_inconsistent_planetoid_files_are_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    FORMATS["planetoid"][4](tmp_path, U, V, None, 6)
    for name, content in change.items():
        path = tmp_path / f"ind.tiny.{name}"
        path.write_bytes(content.encode() if isinstance(content, str) else pickle.dumps(content, 2))
    with pytest.raises(InputError, match=reason) as raised:
        read(open_edges(None, [str(tmp_path)]))
    assert "ind.tiny." in str(raised.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"edge_index": torch.tensor([[0, 1], [1, -2]])}, "edge_index, edge 1: expected a vertex id, found -2"),
        ({"edge_index": torch.rand(2, 3)}, "edge_index: expected integers"),
        ({"edge_index": torch.zeros(3, 3, dtype=torch.int64)}, "edge_index: expected shape"),
        ({"edge_index": torch.zeros(2, 0, dtype=torch.int64)}, "no edges"),
        ({"edge_index": torch.zeros(2, 1, dtype=torch.int64).expand(2, 8)}, "does not lie in its storage"),
        ({"edge_index": torch.zeros(2, 2, dtype=torch.complex64)}, "edge_index: NumPy has no torch.ComplexFloat"),
        ({"num_nodes": 1}, "edge 1: vertex 2 is not below the stated number of vertices, 1"),
        ({"edge_index": torch.ones(3, 3).to_sparse()}, "edge_index: expected a dense tensor, found a sparse one"),
        ({"edge_index": np.zeros(3)}, r"edge_index: expected a dense tensor, found numpy\._core"),
        ({"edge_index": [1, 2]}, "expected edge_index; found"),
    ],
)
def test_tensors_that_are_not_edges_are_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    torch.save({"edge_index": torch.tensor([[0, 1], [1, 2]]), **change}, tmp_path / "data.pt")
    fails(tmp_path / "data.pt", reason)


def test_a_tensor_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    torch.save({"edge_index": torch.arange(4).reshape(2, 2)}, tmp_path / "data.pt")
    with zipfile.ZipFile(tmp_path / "data.pt") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "short.pt", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content[:16] if name.endswith("data/0") else content)
    fails(tmp_path / "short.pt", r"edge_index: shape \(2, 2\) does not lie in its storage of 16 bytes")
    with zipfile.ZipFile(tmp_path / "deflated.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    fails(tmp_path / "deflated.pt", "is compressed")
    torch.save({"a": 1}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    fails(tmp_path / "old.pt", "not a file of torch.save")


# Sizes that only a header states


def npy(header: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode("latin-1") + data


@pytest.mark.parametrize("suffix", [".npy", ".npy.gz", ".npz"])
def test_an_array_larger_than_its_file_is_refused_before_anything_is_planned(tmp_path: Path, suffix: str) -> None:
    content = npy("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 1000000000000000)}\n", bytes(64))
    path = tmp_path / f"huge{suffix}"
    if suffix == ".npz":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("edge_index.npy", content)
    else:
        path.write_bytes(gzip.compress(content) if suffix == ".npy.gz" else content)
    with pytest.raises(InputError, match=r"huge.*2,000,000,000,000,000 elements"):
        open_edges(None if suffix == ".npz" else "npy", [str(path)])


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (2, -3)}",
        "{'descr': '<U0', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': ('<i8',), 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '''<i8, 'fortran_order': False, 'shape': (2, 3)}",
        "(" * 5000,
        "{'descr': 7, 'fortran_order': False, 'shape': (2, 3)}",
    ],
)
def test_a_damaged_header_of_an_array_is_named(tmp_path: Path, header: str) -> None:
    (tmp_path / "bad.npy").write_bytes(npy(header + "\n", bytes(48)))
    fails(tmp_path / "bad.npy", "not a NumPy array")


def reads(path: Path, expected: list[tuple[int, int]]) -> bool:
    """Whether a damaged file is not refused with an error that names it; what is read must be as in the whole file."""
    try:
        found = read(open_edges(None, [str(path)]))
    except (InputError, NotFoundError) as error:
        return path.name not in str(error)
    assert found == expected
    return True


@pytest.mark.parametrize("name", ["a.npz", "a.pt"])
def test_a_damaged_directory_of_an_archive_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    pairs = np.array([[0, 1], [1, 2]])
    if name == "a.npz":
        np.savez(path, edge_index=pairs)
    else:
        torch.save({"edge_index": torch.from_numpy(pairs)}, path)
    whole = path.read_bytes()
    refused = 0
    # Some bytes of a directory mean nothing to a reader, such as dates.
    for at in range(whole.index(b"PK\x01\x02"), len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        refused += not reads(path, [(0, 1), (1, 2)])
    assert refused > 20


@pytest.mark.parametrize(("name", "text"), [("a.mtx", MTX.replace("3 3 2", "3 3 1²")), ("a.graph", "2 1²\n2\n1\n")])
def test_superscripts_are_no_digits(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="latin-1")
    fails(tmp_path / name, "expected the numbers of")


@pytest.mark.parametrize(("name", "text"), [("a.mtx", MTX), ("a.graph", "2 1\n2\n1\n")])
def test_a_last_line_that_may_have_been_cut_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text.removesuffix("\n"))
    fails(tmp_path / name, "the last line has no line feed")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.removesuffix("\n").encode()))
    assert read(open_edges(None, [str(tmp_path / f"{name}.gz")]))


# Vertex data


def read_all(source: VertexSource) -> None:
    for array in source.arrays:
        list(source.read_rows(array, 0, source.num_vertices()))


def vertices_fail(reason: str, **files: Path) -> None:
    with pytest.raises(InputError, match=reason) as raised:
        read_all(open_vertices("files", (), {name: str(path) for name, path in files.items()}))
    assert any(path.name in str(raised.value) for path in files.values()) or "different numbers of rows" in str(
        raised.value
    )


def test_tables_without_vertex_data_are_named(tmp_path: Path) -> None:
    table, text = tmp_path / "t.parquet", tmp_path / "y.csv"
    pq.write_table(pa.table({"a": [1.0, np.nan], "label": [0, 1]}), table)
    text.write_text("0\n1\n2\n")
    vertices_fail("column a, row 1: expected finite float32 features, found nan", feature=table)
    vertices_fail("expected one column 'split'", split=table)
    vertices_fail("different numbers of rows: feature has 2, label has 3", feature=table, label=text)
    pq.write_table(pa.table({"label": [0.5, 1]}), table)
    vertices_fail(r"column label, row 0: expected a class from 0 to .*, found 0\.5", label=table)
    pq.write_table(pa.table({"split": [0, 4]}), table)
    vertices_fail(r"column split, row 1: expected a split code .*, found 4", split=table)
    text.write_text("1\n7\n")
    vertices_fail(re.escape("y.csv, line 2: expected a split code (0 none"), split=text)
    text.write_text("1,2\n3\n")
    vertices_fail("line 2: found too few columns", feature=text)
    vertices_fail("the first of the 2 columns of this split file looks like vertex ids", split=text)
    text.write_text("\n \n")
    vertices_fail("the file is empty", feature=text)


def test_planetoid_matrices_may_be_dense(tmp_path: Path) -> None:
    FORMATS["planetoid"][4](tmp_path, U, V, None, 6)
    before = [next(iter(open_vertices("planetoid", [str(tmp_path)]).read_rows("feature", 0, 6)))]
    for name in ("allx", "tx"):
        path = tmp_path / f"ind.tiny.{name}"
        matrix: Any = pickle.loads(path.read_bytes())
        is_sparse = scipy.sparse.issparse(matrix)
        assert is_sparse
        path.write_bytes(pickle.dumps(matrix.toarray(), 2))
    after = next(iter(open_vertices("planetoid", [str(tmp_path)]).read_rows("feature", 0, 6)))
    np.testing.assert_array_equal(after, before[0])


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_compressed_by_other_methods_than_numpys_are_refused(tmp_path: Path, method: int) -> None:
    path = tmp_path / "edges.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("edge_index.npy", bytes(1000))
    fails(path, r"edge_index\.npy is compressed by another method than deflate")


def test_names_in_an_archive_do_not_break_the_line_of_an_error(tmp_path: Path) -> None:
    path = tmp_path / "edges.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(30):
            archive.writestr(f"first line\nsecond line {number}.npy", b"")
    with pytest.raises((InputError, NotFoundError)) as caught:
        open_edges("npz", [str(path)], {}).num_vertices()
    assert "first line\\nsecond line 0" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "second line 29" not in str(caught.value)
