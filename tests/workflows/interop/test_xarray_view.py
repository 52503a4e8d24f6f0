"""The xarray view has named dimensions and reads only the rows that are accessed."""

from __future__ import annotations

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import CorruptError, NotFoundError
from support.graphs import random_adjacency, store_graph, store_vertices


@pytest.fixture(autouse=True, scope="module")
def _xarray() -> None:
    # Not while tests are collected, which every process does.
    pytest.importorskip("xarray")


def test_arrays_are_read_when_they_are_accessed(catalog: Catalog) -> None:
    from gnnloom.workflows.interop.xarray_view import to_xarray

    dataset = catalog.create("web")
    with pytest.raises(NotFoundError):
        to_xarray(dataset)
    adjacency = random_adjacency(30, 90, 0, symmetric=True)
    store_graph(dataset, adjacency, symmetric=True)
    feature = np.random.default_rng(0).random((30, 4)).astype(np.float32)
    vertices = store_vertices(dataset, feature, np.arange(30) % 3, None)
    view = to_xarray(dataset)
    assert dict(view.sizes) == {"vertex": 30, "feature": 4}
    assert view["feature"].dims == ("vertex", "feature")
    assert view.attrs["num_classes"] == 3
    np.testing.assert_array_equal(view["degree"], np.diff(adjacency.indptr))
    for rows in (slice(3, 9), slice(20, 2, -3), slice(5, 5), [7, 1, 7], 4):
        np.testing.assert_array_equal(view["feature"].isel(vertex=rows), feature[rows])
    np.testing.assert_array_equal(view["feature"].isel(vertex=slice(2, 20, 5), feature=[2, 0]), feature[2:20:5, [2, 0]])
    chunk = vertices.artifact.path / "label" / "c" / "0"
    view = to_xarray(dataset)
    chunk.unlink()
    with pytest.raises(CorruptError, match="the chunk is missing"):
        view["label"].load()
