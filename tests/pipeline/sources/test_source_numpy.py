"""NumPy sources read edges and rows in any layout, unpickle nothing, and name faulty arrays."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.sources.binary import edge_columns
from gnnloom.pipeline.sources.binary.edge_columns import rebatch
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices
from gnnloom.storage.errors import InputError, NotFoundError
from support.covering import few_of

EDGES = np.random.default_rng(7).integers(0, 50, (2, 997))


def read(source: NumpyEdges) -> tuple[np.ndarray, Any]:
    chunks = [chunk for span in source.ranges() for chunk in source.read(span)]
    pairs = np.concatenate([np.stack([chunk.source, chunk.target]) for chunk in chunks], axis=1)
    assert pairs.dtype == np.int64
    if chunks[0].weight is None:
        return pairs, None
    return pairs, np.concatenate([chunk.weight for chunk in chunks])


@pytest.fixture(params=[1 << 21, 10])
def chunk_edges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Large chunks, and chunks so small that every array has many."""
    monkeypatch.setattr(edge_columns, "CHUNK_EDGES", request.param)
    monkeypatch.setattr(edge_columns, "_ROWS", 7)
    return int(request.param)


@pytest.mark.parametrize(
    ("dtype", "layout"),
    few_of(
        ["int64", "int32", "uint8", "uint64", ">i4", ">u8", "int16"],
        ["rows", "columns", "fortran_rows", "fortran_columns"],
        together=1,
    ),
)
def test_npy_pairs_of_any_layout_and_integer(tmp_path: Path, dtype: str, layout: str, chunk_edges: int) -> None:
    array = EDGES.astype(dtype)
    array = array if layout.endswith("rows") else array.T
    order = np.asfortranarray if layout.startswith("fortran") else np.ascontiguousarray
    np.save(tmp_path / "edges.npy", order(array))
    source = NumpyEdges.open([str(tmp_path / "edges.npy")])
    assert np.array_equal(read(source)[0], EDGES)
    ranged = NumpyEdges(source.arrays, range_edges=100)
    assert len(ranged.ranges()) == 10
    assert np.array_equal(read(ranged)[0], EDGES)


def test_a_square_array_is_read_as_two_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.array([[1, 2], [3, 4]]))
    assert read(NumpyEdges.open([str(tmp_path / "edges.npy")]))[0].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("save", "layout"), few_of([np.savez, np.savez_compressed], ["edge_index", "transposed", "row_col"], together=1)
)
def test_npz_pairs_stream_from_stored_and_deflated_members(
    tmp_path: Path, save: object, layout: str, chunk_edges: int
) -> None:
    weight = np.arange(997.0)
    arrays = {
        "edge_index": {"edge_index": EDGES},
        "transposed": {"edge_index": np.ascontiguousarray(EDGES.T)},
        "row_col": {"row": EDGES[0], "col": EDGES[1]},
    }[layout]
    path = tmp_path / "edges.npz"
    save(path, other=np.zeros(3), edge_weight=weight, **arrays)  # type: ignore[operator]
    assert np.array_equal(read(NumpyEdges.open([str(path)]))[0], EDGES)
    pairs, weights = read(NumpyEdges.open([str(path)], weights=True))
    assert np.array_equal(pairs, EDGES)
    assert np.array_equal(weights, weight.astype(np.float32))


@pytest.mark.parametrize(
    ("kind", "compressed", "as_matrix"), few_of(["csr", "csc", "coo"], [False, True], [False, True], together=2)
)
def test_scipy_matrices_give_row_to_column(
    tmp_path: Path, kind: str, compressed: bool, as_matrix: bool, chunk_edges: int
) -> None:
    found: Any = scipy.sparse.random_array((60, 60), density=0.1, rng=np.random.default_rng(1))
    matrix = found.asformat(kind)
    matrix = getattr(scipy.sparse, f"{kind}_matrix")(matrix) if as_matrix else matrix
    scipy.sparse.save_npz(tmp_path / "matrix.npz", matrix, compressed=compressed)
    source = NumpyEdges.open([str(tmp_path / "matrix.npz")], weights=True)
    (row, col), weight = read(source)
    assert source.num_vertices() == 60
    again = scipy.sparse.coo_array((weight, (row, col)), shape=(60, 60))
    assert np.array_equal(again.toarray(), matrix.toarray().astype(np.float32))


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.array([[0, 1, -3], [1, 2, 3]]), "edge 2: expected a vertex id, found -3"),
        (
            np.array([[0, 1, 3], [1, 2, 2**63]], np.uint64),
            "edge 2: expected a vertex id below 2.63, found 9223",
        ),
        (np.array([[0.0, 1, 3], [1, 2, 2]]), "expected integers, found float64"),
        (np.array([[True, False, True]] * 2), "expected integers, found bool"),
        (np.array([["a", "b", "c"]] * 2), "edge 0: expected a vertex id.*--ids names"),
        (np.zeros((3, 4), int), "expected shape"),
        (np.zeros(6, int), "expected shape"),
        (np.zeros((2, 0), int), "the file has no edges"),
    ],
)
def test_arrays_that_are_not_edges_are_named(tmp_path: Path, array: np.ndarray, reason: str) -> None:
    np.save(tmp_path / "bad.npy", array)
    with pytest.raises(InputError, match=reason) as raised:
        read(NumpyEdges.open([str(tmp_path / "bad.npy")]))
    assert "bad.npy" in str(raised.value)


def test_an_npz_with_object_arrays_is_refused_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", edge_index=np.array([[0, 1], [1, None]], dtype=object))
    with pytest.raises(InputError, match=r"bad\.npz, array edge_index:"):
        NumpyEdges.open([str(tmp_path / "bad.npz")])
    np.save(tmp_path / "bad.npy", np.array([[0, 1], [1, None]], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"bad\.npy:"):
        NumpyEdges.open([str(tmp_path / "bad.npy")])


def test_the_error_for_an_npz_without_edges_lists_its_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", x=np.zeros(3), y=np.zeros(3))
    with pytest.raises(InputError, match=r"expected an array edge_index.*found x, y"):
        NumpyEdges.open([str(tmp_path / "bad.npz")])
    np.savez(tmp_path / "bare.npz", edge_index=EDGES)
    with pytest.raises(InputError, match="the file has no weights"):
        NumpyEdges.open([str(tmp_path / "bare.npz")], weights=True)
    with pytest.raises(NotFoundError, match="no such file"):
        NumpyEdges.open([str(tmp_path / "none.npz")])


@pytest.mark.parametrize("kept", [3, 60, 900, -30])
def test_truncated_files_are_errors(tmp_path: Path, kept: int) -> None:
    writers: dict[str, Any] = {"cut.npy": np.save, "cut.npz": np.savez_compressed}
    for name, save in writers.items():
        path = tmp_path / name
        save(path, **({"arr": EDGES} if name == "cut.npy" else {"edge_index": EDGES}))
        path.write_bytes(path.read_bytes()[:kept])
        with pytest.raises(InputError, match=r"cut\.np"):
            read(NumpyEdges.open([str(path)]))


def test_a_damaged_member_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "flipped.npz"
    np.savez(path, edge_index=EDGES)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"flipped\.npz: truncated or damaged"):
        read(NumpyEdges.open([str(path)]))


def test_a_matrix_that_is_not_an_adjacency_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    scipy.sparse.save_npz(path, scipy.sparse.csr_array(np.ones((3, 4))))
    with pytest.raises(InputError, match="must be square"):
        NumpyEdges.open([str(path)])
    scipy.sparse.save_npz(path, scipy.sparse.dia_array(np.eye(3)))
    with pytest.raises(InputError, match="format 'dia'"):
        NumpyEdges.open([str(path)])
    good: dict[str, Any] = {"format": np.array(b"csr"), "shape": np.array([2, 2]), "data": np.ones(2)}
    np.savez(path, **good, indices=np.array([0, 2]), indptr=np.array([0, 1, 2]))
    with pytest.raises(InputError, match="edge 1:"):
        read(NumpyEdges.open([str(path)]))
    np.savez(path, **good, indices=np.array([0, 1]), indptr=np.array([0, 3, 2]))
    with pytest.raises(InputError, match="do not ascend"):
        read(NumpyEdges.open([str(path)]))
    np.savez(path, **good, indices=np.array([0, 1]), indptr=np.array([0, 1, 1]))
    with pytest.raises(InputError, match="ends with 1, expected the 2 entries"):
        read(NumpyEdges.open([str(path)]))


def test_weights_must_be_finite(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", edge_index=EDGES[:, :3], edge_weight=[1.0, np.nan, 2.0])
    with pytest.raises(InputError, match="array edge_weight, edge 1:"):
        read(NumpyEdges.open([str(tmp_path / "bad.npz")], weights=True))


@pytest.mark.parametrize("rows", [1, 3, 10, 100])
def test_rebatch_keeps_the_rows(rows: int) -> None:
    blocks = [np.arange(0, 7), np.arange(7, 7), np.arange(7, 8), np.arange(8, 31)]
    again = list(rebatch(iter(blocks), rows))
    assert np.concatenate(again).tolist() == list(range(31))
    assert all(len(block) == rows for block in again[:-1])


# Vertex data


def rows_of(source: NumpyVertices, array: str) -> np.ndarray:
    return np.concatenate(list(source.read_rows(array, 0, source.num_vertices())))


def saved(folder: Path, name: str, array: np.ndarray) -> str:
    np.save(folder / name, array)
    return str(folder / name)


def test_vertex_arrays_are_read_from_anywhere(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    feature, label, split = rng.normal(size=(40, 3)), rng.integers(-1, 5, 40), rng.integers(0, 4, 40)
    source = NumpyVertices.open(
        feature=saved(tmp_path, "x.npy", feature),
        label=saved(tmp_path, "y.npy", label),
        split=saved(tmp_path, "s.npy", split.astype(np.uint8)),
    )
    assert source.random_access
    assert source.arrays == ("feature", "label", "split")
    assert np.array_equal(rows_of(source, "feature"), feature.astype(np.float32))
    assert np.array_equal(rows_of(source, "label"), label)
    assert np.array_equal(rows_of(source, "split"), split)
    assert np.array_equal(next(source.read_rows("feature", 11, 13)), feature[11:13].astype(np.float32))


def test_vertex_arrays_of_npz_files(tmp_path: Path) -> None:
    feature, label = np.ones((10, 2), np.float16), np.array([0, 1, np.nan, -1, 2, 0, 0, 0, 0, 0])
    np.savez_compressed(tmp_path / "data.npz", feature=feature, label=label)
    np.savez(tmp_path / "split.npz", train=[0, 1], valid=[4], test=np.array([9, 8], np.int32))
    data = str(tmp_path / "data.npz")
    source = NumpyVertices.open(feature=data, label=data, split=str(tmp_path / "split.npz"))
    assert not source.random_access
    assert rows_of(source, "feature").tolist() == feature.tolist()
    assert rows_of(source, "label").tolist() == [0, 1, -1, -1, 2, 0, 0, 0, 0, 0]
    assert rows_of(source, "split").tolist() == [1, 1, 0, 0, 2, 0, 0, 0, 3, 3]


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.array([[1, 2], [3, np.nan], [1, 1]]), r"row 1: expected finite float32 features, found nan in column 1"),
        (np.array([[1, 2], [3, 4], [np.inf, 1]]), "row 2: expected finite"),
        (np.array([[1, 2], [3, 4], [1e39, 1]]), "row 2: expected finite"),
        (np.zeros(3), "of shape"),
        (np.zeros((3, 2), complex), "expected numbers"),
        (np.asfortranarray(np.zeros((3, 2))), "Fortran order"),
    ],
)
def test_features_that_cannot_be_used_are_named(tmp_path: Path, array: np.ndarray, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as raised:
        rows_of(NumpyVertices.open(feature=saved(tmp_path, "x.npy", array)), "feature")
    assert "x.npy" in str(raised.value)


@pytest.mark.parametrize(
    "array",
    [
        np.array([0, 1, -2]),
        np.array([0, 1, 2**31]),
        np.array([0, 1, 2**63], np.uint64),
        np.array([0, 1, 1.5]),
        np.array([0, 1, np.inf]),
    ],
)
def test_labels_out_of_range_are_named(tmp_path: Path, array: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"y\.npy, row 2: expected a class from 0"):
        rows_of(NumpyVertices.open(label=saved(tmp_path, "y.npy", array)), "label")


def test_splits_out_of_range_are_named(tmp_path: Path) -> None:
    label = saved(tmp_path, "y.npy", np.zeros(5, int))
    codes = saved(tmp_path, "s.npy", np.array([0, 1, 2, 3, 4]))
    with pytest.raises(InputError, match=r"s\.npy, row 4:"):
        rows_of(NumpyVertices.open(label=label, split=codes), "split")
    for ids, reason in (([1, 5], "entry 1: expected a vertex from 0 to 4, found 5"), ([-1], "found -1")):
        np.savez(tmp_path / "s.npz", train=[0], valid=ids, test=[2])
        with pytest.raises(InputError, match=f"array valid, {'' if len(ids) > 1 else 'entry 0.*'}{reason}"):
            rows_of(NumpyVertices.open(label=label, split=str(tmp_path / "s.npz")), "split")
    np.savez(tmp_path / "s.npz", train=[0, 2], valid=[1], test=[3, 2])
    with pytest.raises(InputError, match="array test, entry 1:"):
        rows_of(NumpyVertices.open(label=label, split=str(tmp_path / "s.npz")), "split")


def test_different_numbers_of_rows_are_named(tmp_path: Path) -> None:
    feature, label = saved(tmp_path, "x.npy", np.zeros((5, 2))), saved(tmp_path, "y.npy", np.zeros(4, int))
    with pytest.raises(InputError, match=r"y\.npy: 4 rows, .*x\.npy has 5"):
        NumpyVertices.open(feature=feature, label=label)
    with pytest.raises(InputError, match="no vertex data given"):
        NumpyVertices.open()


def test_object_arrays_of_vertices_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", feature=np.array([[1, None]], dtype=object))
    with pytest.raises(InputError, match=r"x\.npz, array feature:"):
        NumpyVertices.open(feature=str(tmp_path / "x.npz"))


def test_a_file_that_is_not_an_archive_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_text("hello")
    with zipfile.ZipFile(tmp_path / "y.npz", "w") as archive:
        archive.writestr("edge_index.npy", b"not an array")
    with pytest.raises(InputError, match=r"x\.npz: truncated or damaged"):
        NumpyEdges.open([str(tmp_path / "x.npz")])
    with pytest.raises(InputError, match=r"y\.npz, array edge_index: not a NumPy array"):
        NumpyEdges.open([str(tmp_path / "y.npz")])
