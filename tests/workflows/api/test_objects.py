"""Objects of other libraries are stored as the graphs that they are, or refused by their type with what to pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch

import gnnloom
from gnnloom.storage.errors import InputError


@pytest.fixture(autouse=True)
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNLOOM_CATALOG", str(tmp_path / "catalog"))


def adjacency(source: Any, **options: Any) -> Any:
    """(n, n) dense; the entry (u, v) is the edge u -> v."""
    dataset = gnnloom.ingest("web", source, workers=0, self_loops="keep", **options)
    return dataset.to_scipy().toarray().T


def graph(size: int) -> Any:
    at = torch.arange(size)
    data = pytest.importorskip("torch_geometric.data").Data
    return data(x=torch.full((size, 1), float(size)), edge_index=torch.stack([at, (at + 1) % size]), y=at % 2)


def dataset(*sizes: int) -> Any:
    base: Any = pytest.importorskip("torch_geometric.data").InMemoryDataset

    class Rings(base):  # type: ignore[misc, valid-type, unused-ignore]
        def __init__(self) -> None:
            super().__init__(None)
            self.data, self.slices = self.collate([graph(size) for size in sizes])

    return Rings()


def collated(*sizes: int) -> Any:
    base = pytest.importorskip("torch_geometric.data").InMemoryDataset
    return base.collate([graph(size) for size in sizes])


@pytest.mark.parametrize("container", [dataset, collated, lambda *sizes: [graph(size) for size in sizes]])
def test_only_containers_of_one_graph_are_stored(container: Any) -> None:
    assert np.array_equal(adjacency(container(5)), np.roll(np.eye(5), 1, axis=1))
    with pytest.raises(InputError, match=r"3 graphs.*dataset\[0\].*Batch.from_data_list"):
        gnnloom.ingest("many", container(3, 4, 5))
    joined = pytest.importorskip("torch_geometric.data").Batch.from_data_list([graph(3), graph(4)])
    assert gnnloom.ingest("joined", joined, workers=0).graph().num_vertices == 7


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_a_graph_of_networkx_is_stored_as_networkx_sees_it(kind: Any) -> None:
    # Vertex 3 has no edge.
    given = kind()
    given.add_nodes_from([2, 0, 1, 3])
    given.add_edge(0, 1, weight=2.5)
    given.add_edge(2, 1)
    expected = nx.to_numpy_array(given, nodelist=range(4))
    assert np.array_equal(adjacency(given, weights=True), expected)
    assert gnnloom.Catalog()["web"].graph().symmetric is not given.is_directed()


def test_nodes_that_are_no_numbers_are_names() -> None:
    for number, given in enumerate([nx.grid_2d_graph(3, 3), nx.relabel_nodes(nx.path_graph(4), str)]):
        stored = gnnloom.ingest(f"names{number}", given, ids="compact", workers=0, self_loops="keep").graph()
        assert (stored.num_vertices, stored.nnz) == (len(given), 2 * given.number_of_edges())
    with pytest.raises(InputError, match="two nodes are different and have the same text"):
        gnnloom.ingest("mixed", nx.Graph([(1, "1")]), ids="compact")


def test_nodes_without_edges_are_left_out_with_a_warning_if_they_cannot_be_kept() -> None:
    given = nx.path_graph(3)
    given.add_node(9)
    with pytest.warns(UserWarning, match="1 of 4 nodes have no edge and are left out"):
        assert len(adjacency(given)) == 3
    with pytest.raises(InputError, match="no edges"):
        gnnloom.ingest("empty", nx.empty_graph(4))


def test_an_undirected_graph_is_not_stored_as_directed() -> None:
    with pytest.raises(InputError, match=r"undirected=False: .*to_directed"):
        gnnloom.ingest("web", nx.path_graph(3), undirected=False)
    assert np.array_equal(
        adjacency(nx.path_graph(3).to_directed(), undirected=False), nx.to_numpy_array(nx.path_graph(3))
    )


def igraph_class() -> Any:
    class Graph:
        """What is used of a graph of igraph, which need not be installed."""

        vs: Any
        es: Any

        def __init__(self, names: list[str] | None, weights: list[float] | None, *, directed: bool) -> None:
            self.vs = Attributes({"name": names} if names else {})
            self.es = Attributes({"weight": weights} if weights else {})
            self.directed = directed

        def vcount(self) -> int:
            return 3

        def is_directed(self) -> bool:
            return self.directed

        def get_edgelist(self) -> list[tuple[int, int]]:
            return [(0, 1), (1, 2)]

    class Attributes(dict[str, Any]):
        def attributes(self) -> list[str]:
            return list(self)

    Graph.__module__ = "igraph"
    return Graph


@pytest.mark.parametrize("names", [None, ["ann", "bob", "cid"]])
@pytest.mark.parametrize("directed", [False, True])
def test_a_graph_of_igraph_is_stored(names: list[str] | None, directed: bool) -> None:
    given = igraph_class()(names, [2.0, 3.0], directed=directed)
    expected = np.array([[0, 2, 0], [0, 0, 3], [0, 0, 0]])
    ids = "compact" if names else "keep"
    assert np.array_equal(adjacency(given, weights=True, ids=ids), expected if directed else expected + expected.T)


def test_sparse_tensors_are_stored_as_scipy_stores_the_same_matrix() -> None:
    entries = torch.tensor([[0, 1, 1], [1, 2, 2]])
    matrix = torch.sparse_coo_tensor(entries, torch.tensor([1.0, 2.0, 3.0]), (4, 4), check_invariants=True)
    expected = np.array([[0, 1, 0, 0], [0, 0, 5, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert np.array_equal(adjacency(matrix, weights=True), expected)
    plain = scipy.sparse.coo_array(([1.0, 2.0, 3.0], entries.numpy()), (4, 4))
    again = gnnloom.ingest("scipy", plain.astype(np.float32), workers=0, self_loops="keep", weights=True)
    assert again.graph().artifact.digest == gnnloom.Catalog()["web"].graph().artifact.digest
    transposed = pytest.importorskip("torch_geometric.data").Data(adj_t=matrix.t(), num_nodes=4)
    of_data = gnnloom.ingest("data", transposed, workers=0, self_loops="keep", weights=True)
    assert np.array_equal(of_data.to_scipy().toarray().T, expected)
    with pytest.raises(InputError, match=r"source: .* square, found shape \(2, 3\)"):
        gnnloom.ingest("other", torch.eye(3)[:2].to_sparse())


def test_views_of_tensors_are_stored_as_they_look() -> None:
    data = graph(5)
    data.x, data.edge_index = torch.arange(15.0).reshape(3, 5).t(), data.edge_index.t().contiguous().t()
    data.other = torch.eye(5).to_sparse()
    assert np.array_equal(adjacency(data), np.roll(np.eye(5), 1, axis=1))
    stored = gnnloom.Catalog()["web"].vertices()
    np.testing.assert_array_equal(stored.feature(), data.x.numpy())
    data.y = torch.rand(5)
    assert gnnloom.ingest("target", data, workers=0).vertices().has_target
    data.x = torch.eye(5).to_sparse()
    with pytest.raises(InputError, match=r"source:"):
        gnnloom.ingest("sparse", data)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: np.eye(4), r"\(4, 4\) looks like a dense adjacency matrix; pass scipy.sparse.coo_array"),
        (lambda: torch.eye(3, dtype=torch.bool), "dense adjacency matrix"),
        (lambda: [[0, 1, 0, 1]] * 4, "dense adjacency matrix"),
        (lambda: {(0, 1), (1, 2)}, r"found set; pass sorted\(edges\)"),
        (lambda: frozenset({(0, 1)}), r"found frozenset; pass sorted\(edges\)"),
        (lambda: {0: [1], 1: [2]}, "found dict; pass networkx.from_dict_of_lists"),
        ({0: [1]}.items, r"found dict_items; pass sorted\(edges\)"),
        (lambda: ((k, k + 1) for k in range(3)), r"found generator; pass list\(edges\)"),
        (lambda: zip([0, 1], [1, 2], strict=True), r"found zip; pass list\(edges\)"),
        (lambda: [(0, 1, 0.5), (1, 2, 0.5), (2, 3, 1.0)], "pandas.DataFrame"),
        (lambda: np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]), r"float64; pass edges.astype\(int\)"),
        (lambda: [(0, None)], "source: expected numbers or text"),
        (lambda: [(0, 1), (1,)], "source: cannot be made a NumPy array"),
        (list, r"source: expected pairs of shape .* found \(0,\)"),
        (lambda: None, "found NoneType"),
        (lambda: b"0 1", "found bytes"),
        (lambda: ({"edge_index": np.array([[0], [1]])}, np.zeros((2, 1))), "a graph and numpy.ndarray"),
    ],
)
def test_other_objects_are_refused_by_their_type(make: Any, named: str) -> None:
    with pytest.raises(InputError, match=named) as raised:
        gnnloom.ingest("web", make())
    assert str(raised.value).startswith("source: ")
    assert "\n" not in str(raised.value)
    assert "web" not in gnnloom.Catalog()


def test_lists_of_pairs_and_columns_stay_edges() -> None:
    expected = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert np.array_equal(adjacency([(0, 1), (1, 2)]), expected)
    sources, targets = [0, 1], [1, 2]
    # Two pairs are read as sources and targets, as before.
    assert np.array_equal(adjacency_of("columns", (np.array([*sources, 0]), np.array([*targets, 1]))), expected)


def adjacency_of(name: str, source: Any) -> Any:
    return gnnloom.ingest(name, source, workers=0, self_loops="keep").to_scipy().toarray().T
