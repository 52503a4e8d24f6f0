"""Files of gnn-benchmark and heterophilous-graphs give edges, features, labels and splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gnnloom.pipeline.sources.format import bundled_vertices, open_edges
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.vertex_data import benchmark_vertices
from gnnloom.storage.errors import InputError

N = 6
ADJACENCY = sp.csr_array(np.eye(N, k=1) + 2 * np.eye(N, k=-2), dtype=np.float32)
FEATURE = np.where(np.random.default_rng(1).random((N, 4)) < 0.5, 0, 1.5).astype(np.float32)
MASKS = np.arange(3)[:, None] == np.random.default_rng(2).integers(0, 3, (10, 1, N))


def rows(source: VertexSource | None, array: str, start: int = 0, stop: int = N) -> Any:
    assert source is not None
    return np.concatenate(list(source.read_rows(array, start, stop)))


def dense(path: Path, **options: Any) -> Any:
    source = open_edges(None, [str(path)], options)
    assert source.num_vertices() == N
    matrix = np.zeros((N, N))
    for span in source.ranges():
        for chunk in source.read(span):
            matrix[chunk.source, chunk.target] = 1 if chunk.weight is None else chunk.weight
    return matrix


def members(name: str, matrix: Any) -> dict[str, Any]:
    return {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_gnn_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Any, is_sparse: bool) -> None:
    monkeypatch.setattr(benchmark_vertices, "_BLOCK_VALUES", 8)
    feature = members("attr", sp.csr_array(FEATURE)) if is_sparse else {"attr_matrix": FEATURE}
    save(tmp_path / "a.npz", **members("adj", ADJACENCY), **feature, labels=np.arange(N, dtype=np.int8) % 3)
    assert np.array_equal(dense(tmp_path / "a.npz", weights=True), ADJACENCY.toarray())
    assert np.array_equal(dense(tmp_path / "a.npz"), ADJACENCY.toarray() > 0)
    source = bundled_vertices(None, [str(tmp_path / "a.npz")])
    assert np.array_equal(rows(source, "feature"), FEATURE)
    assert np.array_equal(rows(source, "feature", 1, 4), FEATURE[1:4])
    assert rows(source, "label").tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("index", [0, 9])
def test_heterophilous_graphs(tmp_path: Path, index: int) -> None:
    edges = np.argwhere(ADJACENCY.toarray())
    masks = {name: MASKS[:, k] for k, name in enumerate(("train_masks", "val_masks", "test_masks"))}
    np.savez(tmp_path / "a.npz", edges=edges, node_features=FEATURE, node_labels=np.arange(N) % 2, **masks)
    assert np.array_equal(dense(tmp_path / "a.npz", split_index=index), ADJACENCY.toarray() > 0)
    source = bundled_vertices(None, [str(tmp_path / "a.npz")], {"split_index": index})
    assert np.array_equal(rows(source, "feature"), FEATURE)
    assert rows(source, "label").tolist() == [0, 1, 0, 1, 0, 1]
    assert np.array_equal(rows(source, "split"), MASKS[index].argmax(0) + 1)
    with pytest.raises(InputError, match=r"10.*--split-index"):
        bundled_vertices(None, [str(tmp_path / "a.npz")])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attr_indptr": np.array([0, 1, 2])}, "attr_indptr: 3 offsets"),
        ({"attr_indptr": np.arange(N + 1)[::-1]}, "offsets near row 0 do not ascend"),
        ({"attr_indices": np.full(sp.csr_array(FEATURE).nnz, 4)}, "expected columns below 4"),
        ({"attr_data": np.full(sp.csr_array(FEATURE).nnz, np.nan)}, "attr_data, row 0: expected finite"),
        ({"labels": np.arange(N + 1)}, "different numbers of rows"),
    ],
)
def test_damaged_features_are_named(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    given = members("adj", ADJACENCY) | members("attr", sp.csr_array(FEATURE)) | {"labels": np.arange(N)} | change
    np.savez(tmp_path / "a.npz", **given)
    with pytest.raises(InputError, match=named):
        rows(bundled_vertices(None, [str(tmp_path / "a.npz")]), "feature")


def test_other_files_bring_no_vertex_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", edge_index=np.array([[0, 1], [1, 2]]), labels=np.arange(3), edges=np.zeros((2, 2)))
    assert bundled_vertices(None, [str(tmp_path / "a.npz")]) is None
