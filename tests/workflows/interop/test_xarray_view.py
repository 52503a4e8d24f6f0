"""The xarray view has named dimensions and reads only the rows that are accessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.errors import CorruptError, InputError, NotFoundError
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


@pytest.mark.slow
def test_the_vertices_of_a_type_are_a_view_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("user,film\n30,7\n10,7\n20,9\n")
    (tmp_path / "users.csv").write_text("id,age\n20,1\n10,2\n30,3\n40,4\n")
    catalog = tmp_path / "catalog"
    dataset = gnnloom.ingest(
        "films",
        relations={("user", "rates", "film"): f"{tmp_path}/rates.csv:user,film"},
        vertices={"user": f"{tmp_path}/users.csv:id,age as feature"},
        unknown="add",
        workers=0,
        catalog=catalog,
    )
    # A graph without held-out edges changes nothing.
    gnnloom.draw_links(dataset, relation="rates", valid=0.34, test=0.34, workers=0)
    users = dataset.to_xarray(of_type="user")
    assert users["original_id"].to_numpy().tolist() == [10, 20, 30, 40]
    assert users["feature"].to_numpy().tolist() == [[2], [1], [3], [4]]
    assert users.attrs["type"] == "user"
    assert set(users.data_vars) == {"original_id", "feature"}
    films = dataset.to_xarray(of_type="film")
    assert films["original_id"].to_numpy().tolist() == [7, 9]
    assert set(films.variables) == {"original_id"}
    with pytest.raises(InputError, match="of_type: film, user"):
        dataset.to_xarray()
    with pytest.raises(NotFoundError, match=r"users.*user"):
        dataset.to_xarray(of_type="users")


def test_graphs_without_types_have_no_type_to_view(catalog: Catalog) -> None:
    from gnnloom.workflows.interop.xarray_view import to_xarray

    dataset = catalog.create("web")
    store_graph(dataset, random_adjacency(30, 90, 0, symmetric=True), symmetric=True)
    with pytest.raises(InputError, match="of_type"):
        to_xarray(dataset, of_type="user")
