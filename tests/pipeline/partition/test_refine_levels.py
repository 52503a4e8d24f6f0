"""Refinement on several levels: clusters move where no vertex would, and neither parts nor balance get lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.part_files import rows_sent
from gnnloom.pipeline.partition.multilevel.refine import Refinement, refine, refine_levels
from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_hypergraph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.format.memory_map import create_part_vector
from support.graphs import store_graph

HERE = InProcessCluster()
CLIQUES, SIZE = 32, 5


def ring_of_cliques() -> Any:
    """Cliques of ``SIZE`` vertices with loops, each with one edge to the next."""
    inside: Any = scipy.sparse.block_diag([np.ones((SIZE, SIZE))] * CLIQUES)
    last = np.arange(CLIQUES) * SIZE + SIZE - 1
    across: Any = scipy.sparse.coo_array(
        (np.ones(CLIQUES), (last, (last + 1) % (CLIQUES * SIZE))), shape=(CLIQUES * SIZE, CLIQUES * SIZE)
    )
    return (inside + across + across.T).tocsr()


def stored(folder: Path) -> DiskHypergraph:
    graph = store_graph(Catalog(folder).create("g"), ring_of_cliques(), symmetric=True)
    return store_hypergraph(folder / "disk", graph, graph, HERE)


def alternating(folder: Path, name: str = "part") -> NDArray[np.int32]:
    """Parts 0 and 1 that change from one clique to the next, in a file."""
    part = create_part_vector(folder / f"{name}.npy", CLIQUES * SIZE)
    part[:] = np.arange(CLIQUES * SIZE) // SIZE % 2
    return part


def refined(hypergraph: DiskHypergraph, folder: Path, name: str, refinement: Refinement) -> NDArray[np.int32]:
    part = alternating(folder, name)
    refine_levels(hypergraph, part, folder / f"{name}.npy", refinement, 5, folder / name, HERE)
    return part


def test_clusters_move_where_every_vertex_alone_would_lose(tmp_path: Path) -> None:
    hypergraph = stored(tmp_path)
    part = alternating(tmp_path)
    before = rows_sent(hypergraph, tmp_path / "part.npy", 2, HERE)
    assert before == 2 * CLIQUES
    refinement = Refinement(2, 0.2, 0, 8, 1 << 20, 0.0)
    refine(hypergraph, part, tmp_path / "part.npy", refinement, tmp_path / "masks", HERE)
    assert rows_sent(hypergraph, tmp_path / "part.npy", 2, HERE) == before
    part = refined(hypergraph, tmp_path, "levels", refinement)
    assert rows_sent(hypergraph, tmp_path / "levels.npy", 2, HERE) < 0.7 * before
    load = np.bincount(part, weights=hypergraph.vertex_weight)
    assert load.max() <= 1.2 * load.sum() / 2


def test_without_passes_every_vertex_keeps_its_part(tmp_path: Path) -> None:
    hypergraph = stored(tmp_path)
    part = refined(hypergraph, tmp_path, "none", Refinement(2, 0.2, 0, 0, 1 << 20, 1.0))
    np.testing.assert_array_equal(part, alternating(tmp_path))
    assert not list((tmp_path / "none").glob("level-*"))


def test_the_same_seed_gives_the_same_parts_with_heat(tmp_path: Path) -> None:
    hypergraph = stored(tmp_path)
    parts = [
        refined(hypergraph, tmp_path, name, Refinement(2, 0.2, seed, 8, 1 << 20, 1.0)).tolist()
        for name, seed in (("one", 0), ("again", 0), ("other", 1))
    ]
    assert parts[0] == parts[1]
    assert parts[0] != parts[2]
