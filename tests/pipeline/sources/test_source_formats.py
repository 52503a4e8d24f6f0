"""Every format gives the matrix that SciPy builds from the same edges."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.sources.format import guess_format, open_edges
from gnnloom.pipeline.sources.metis import MetisEdges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from support.covering import examples, few_of
from support.edge_formats import FORMATS
from support.tolerance import assert_close

#: Fields and symmetries of MatrixMarket files; a pattern has no signs, so it cannot be skew-symmetric.
MATRICES = [
    (field, symmetry)
    for field in ("pattern", "real", "integer")
    for symmetry in ("general", "symmetric", "skew-symmetric")
    if (field, symmetry) != ("pattern", "skew-symmetric")
]
HERE = InProcessCluster()


def ingested(
    folder: Path, source: Any, *, undirected: bool = False, loops: str = "keep", merge: str | None = None
) -> Any:
    dataset = Catalog(folder / "catalog").create("graph")
    graph = ingest_graph(dataset, source, IngestOptions(undirected, loops, merge=merge), HERE)
    matrix = graph.to_scipy()
    assert graph.num_vertices == matrix.shape[0]
    return matrix


def matrix_of(u: Any, v: Any, w: Any, n: int, *, undirected: bool, loops: str) -> Any:
    """Build A[v, u] with SciPy: sums of equal edges (loops of undirected graphs count once), or ones if unweighted."""
    weights = np.ones(len(u)) if w is None else w.astype(np.float64)
    matrix = scipy.sparse.coo_array((weights, (v, u)), shape=(n, n)).tocsr()
    if undirected:
        matrix = matrix + matrix.T - scipy.sparse.diags_array(matrix.diagonal())
    if w is None:
        matrix.eliminate_zeros()
        matrix.data[:] = 1
    if loops == "add":
        missing = np.ones(n)
        missing[u[u == v]] = 0
        matrix = matrix + scipy.sparse.diags_array(missing)
    matrix.eliminate_zeros()
    return matrix


def assert_same(found: Any, expected: Any) -> None:
    assert found.shape == expected.shape
    assert found.nnz == expected.nnz
    assert_close(found.toarray(), expected.toarray(), bits=3, dtype=np.float32)


@st.composite
def edge_lists(draw: st.DrawFn, most_vertices: int, weighted: bool) -> tuple[Any, Any, Any, int]:
    n = draw(st.integers(3, min(most_vertices, 200)))
    ids = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=40))
    u, v = np.array(edges, dtype=np.int64).T
    w = np.random.default_rng(len(edges)).random(len(u)).astype(np.float32) + 1 if weighted else None
    return u, v, w, n


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=examples(10), deadline=None)
@given(st.data())
def test_a_format_gives_the_matrix_that_scipy_builds(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    format_name, options, has_weights, most, write = FORMATS[name]
    weighted = has_weights and data.draw(st.booleans())
    u, v, w, n = data.draw(edge_lists(most, weighted))
    undirected, loops = data.draw(st.booleans()), data.draw(st.sampled_from(["keep", "add"]))
    folder = tmp_path_factory.mktemp(name)
    location = write(folder, u, v, w, n)
    given_options = {**options, **({"weights": True} if weighted else {})}
    source = open_edges(format_name, [location], given_options, undirected=undirected)
    # A first line that may count the others is asked about.
    if format_name != "graph500" and not (name == "zst" and v[0] == len(u) - 1):
        assert guess_format([location]) == format_name
    assert getattr(source, "num_edges", len(u)) == len(u)
    rows = source.num_vertices() or int(max(u.max(), v.max())) + 1
    assert rows in {n, int(max(u.max(), v.max())) + 1}
    found = ingested(folder, source, undirected=undirected, loops=loops, merge="sum")
    assert_same(found, matrix_of(u, v, w, rows, undirected=undirected, loops=loops))


@pytest.mark.parametrize(
    ("matrix", "undirected", "suffix"), few_of(MATRICES, [False, True], ["", ".gz", ".zst"], together=2)
)
def test_a_matrix_market_file_gives_the_matrix_that_scipy_reads(
    tmp_path: Path, matrix: tuple[str, str], undirected: bool, suffix: str
) -> None:
    field, symmetry = matrix
    rng = np.random.default_rng(3)
    lower = np.tril(rng.integers(1, 9, (12, 12)) * (rng.random((12, 12)) < 0.3), -1 if "skew" in symmetry else 0)
    full = lower if symmetry == "general" else lower + (-1 if "skew" in symmetry else 1) * np.tril(lower, -1).T
    stream = io.BytesIO()
    write: Any = scipy.io.mmwrite
    write(stream, scipy.sparse.coo_array(full), field=field, symmetry=symmetry, comment="made by hand")
    path = tmp_path / f"edges.mtx{suffix}"
    path.write_bytes(compress(stream.getvalue(), suffix))
    weights = {"weights": True} if field != "pattern" else {}
    source = open_edges(None, [str(path)], weights, undirected=undirected)
    stream.seek(0)
    read: Any = scipy.io.mmread(stream)
    expected = read.toarray()
    if undirected and symmetry != "symmetric":
        expected = expected + expected.T - np.diag(np.diag(expected))
    # The two directions of an edge have different weights, unless the matrix is symmetric.
    merge = "sum" if undirected and symmetry != "symmetric" else None
    found = ingested(tmp_path, source, undirected=undirected, merge=merge).toarray()
    np.testing.assert_array_equal(found, expected if weights else expected != 0)


def compress(data: bytes, suffix: str) -> bytes:
    import gzip

    import pyarrow as pa

    compressed: dict[str, bytes] = {
        "": data,
        ".gz": gzip.compress(data),
        ".zst": pa.compress(data, codec="zstd", asbytes=True),
    }
    return compressed[suffix]


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_a_metis_file_gives_the_symmetric_matrix_for_any_block_size(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    n = data.draw(st.integers(2, 30))
    ids = st.integers(0, n - 1)
    pairs = data.draw(st.sets(st.tuples(ids, ids).filter(lambda pair: pair[0] < pair[1]), min_size=1, max_size=40))
    adjacency = np.zeros((n, n), np.float32)
    step = data.draw(st.sampled_from([1, 0.25, -0.25]))
    for number, (a, b) in enumerate(sorted(pairs)):
        adjacency[a, b] = adjacency[b, a] = step * (number + 1)
    size, weight_count, weighted = data.draw(st.booleans()), data.draw(st.integers(0, 2)), data.draw(st.booleans())
    text = metis_text(adjacency, len(pairs), size, weight_count, weighted, data.draw)
    folder = tmp_path_factory.mktemp("metis")
    # Only the checksum of a compressed file shows that a last line without a line feed is complete.
    path = folder / ("g.graph" if text.endswith("\n") else "g.graph.gz")
    path.write_bytes(compress(text.encode(), path.suffix.replace(".graph", "")))
    undirected = data.draw(st.booleans())
    source = MetisEdges.open([str(path)], weights=weighted, undirected=undirected)
    cut = MetisEdges(source.graphs, weighted, undirected, block_bytes=data.draw(st.integers(1, 20)))
    found = ingested(folder, cut, undirected=undirected).toarray()
    np.testing.assert_array_equal(found, adjacency if weighted else adjacency != 0)


def metis_text(adjacency: Any, num_edges: int, size: bool, weights: int, weighted: bool, draw: Any) -> str:
    text = f"% made by hand\n{len(adjacency)} {num_edges} {int(size)}{int(weights > 0)}{int(weighted)}"
    text += f" {weights}\n" if weights else "\n"
    for vertex, row in enumerate(adjacency):
        text += draw(st.sampled_from(["", "% between 1 2\n"]))
        words = ["7"] * (size + weights)
        for neighbor in np.flatnonzero(row):
            weight = float(row[neighbor])
            forms = [f"{weight:.2f}", f"{weight:.3e}", f"{weight:g}"]
            words += [str(neighbor + 1), *([draw(st.sampled_from(forms))] if weighted else [])]
        text += draw(st.sampled_from([" ", "\t", "  "])).join(words)
        text += "\n" if vertex < len(adjacency) - 1 else draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
    return text if adjacency[-1].any() is np.False_ or draw(st.booleans()) else text.rstrip()
