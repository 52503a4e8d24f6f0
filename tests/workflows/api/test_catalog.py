"""Datasets of the Python API are those of storage, and give themselves to other libraries."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import gnnloom
from gnnloom.storage.errors import MissingPackageError
from support.small_catalogs import store_small_dataset


@pytest.fixture
def web(tmp_path: Path) -> gnnloom.Dataset:
    catalog = gnnloom.Catalog(tmp_path)
    store_small_dataset(catalog)
    return catalog["web"]


@pytest.mark.slow
def test_other_libraries_get_the_dataset(web: gnnloom.Dataset) -> None:
    dense = web.to_scipy().toarray()
    pytest.importorskip("torch_geometric")
    data = web.to_pyg()
    assert data.edge_index is not None
    rebuilt = np.zeros_like(dense)
    rebuilt[data.edge_index[1], data.edge_index[0]] = 1
    np.testing.assert_array_equal(rebuilt, dense)
    np.testing.assert_array_equal(data.x, web.vertices().feature())
    pytest.importorskip("xarray")
    np.testing.assert_array_equal(web.to_xarray()["label"], web.vertices().label())


def test_dgl_gets_the_dataset(web: gnnloom.Dataset) -> None:
    pytest.importorskip("dgl")
    graph, dense = web.to_dgl(), web.to_scipy().toarray()
    sources, targets = (ids.numpy() for ids in graph.edges())
    rebuilt = np.zeros_like(dense)
    rebuilt[targets, sources] = 1
    np.testing.assert_array_equal(rebuilt, dense)
    np.testing.assert_array_equal(graph.ndata["x"], web.vertices().feature())
    assert graph.num_nodes() == 30


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [("to_pyg", "torch_geometric", "gnnloom[interop]"), ("to_xarray", "xarray", "gnnloom[xarray]"), ("to_dgl",) * 3],
)
def test_a_missing_library_is_named_with_its_installation(
    web: gnnloom.Dataset, monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str
) -> None:
    if name == "to_dgl":
        module = package = "dgl"
    for loaded in [each for each in sys.modules if each.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.delitem(sys.modules, "gnnloom.workflows.interop.xarray_view", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        MissingPackageError, match=f"{name} needs {module}.*pip install '{package.replace('[', '.')[:-1]}"
    ):
        getattr(web, name)()


def test_catalogs_and_datasets_show_themselves_in_notebooks(web: gnnloom.Dataset) -> None:
    shown = web._repr_html_()
    for text in ("dataset web", "<td>partition</td>", "parts=2", "<td>complete</td>", "<td>first</td>"):
        assert text in shown
    listed = gnnloom.Catalog(web.path.parent)._repr_html_()
    assert "<td>web</td><td>5</td><td>1</td>" in listed


def test_an_imported_dataset_is_one_of_the_api(web: gnnloom.Dataset, tmp_path: Path) -> None:
    web.export(tmp_path / "web.tar")
    other = gnnloom.Catalog(tmp_path / "other").import_dataset(tmp_path / "web.tar")
    assert isinstance(other, gnnloom.Dataset)
    assert other.to_scipy().nnz == web.to_scipy().nnz
