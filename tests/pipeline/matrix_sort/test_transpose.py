"""The transpose of a stored graph is the one that SciPy computes, as an artifact of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import Scratch
from support.edge_files import write_edges
from support.lanes import flip_bit
from support.stopping import StoppedError, StoppingCluster


@pytest.mark.parametrize("weighted", [False, True])
def test_the_transpose_is_that_of_scipy(catalog: Catalog, tmp_path: Path, weighted: bool) -> None:
    cluster = InProcessCluster(scratch=Scratch(block_entries=20_000, read_edges=700))
    rng = np.random.default_rng(0)
    u, v = rng.integers(0, 20_000, (2, 50_000))
    u[:5000] = 11
    v[40_000:45_000] = 12
    source = write_edges(tmp_path / "edges", u, v, rng.random(50_000) if weighted else None)
    dataset = catalog.create("g")
    graph = ingest_graph(dataset, source, IngestOptions(), cluster)
    transposed = transpose_graph(dataset, graph, cluster)
    expected = graph.to_scipy().T.tocsr()
    expected.sort_indices()
    found = transposed.to_scipy()
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.data, expected.data)
    assert transposed.artifact.kind == "transpose"
    assert transposed.artifact.inputs == {"graph": graph.artifact.key}
    assert transposed.artifact.facts["duplicates"] == 0
    transposed.artifact.verify()
    assert transpose_graph(dataset, graph, cluster).artifact.digest == transposed.artifact.digest


def test_a_symmetric_graph_is_its_own_transpose(catalog: Catalog, tmp_path: Path) -> None:
    dataset = catalog.create("g")
    source = write_edges(tmp_path / "edges", [0, 1], [1, 2])
    graph = ingest_graph(dataset, source, IngestOptions(undirected=True), InProcessCluster())
    assert transpose_graph(dataset, graph, InProcessCluster()) is graph
    assert not dataset.artifacts("transpose")


def test_a_flipped_bit_in_a_spill_file_after_a_kill_changes_no_byte(catalog: Catalog, tmp_path: Path) -> None:
    scratch = Scratch(block_entries=2000)
    cluster = InProcessCluster(scratch=scratch)
    u, v = np.random.default_rng(3).integers(0, 5000, (2, 6000))
    source, found = write_edges(tmp_path / "edges", u, v, range_edges=2000), []
    for name, tasks in (("whole", None), ("stopped", 3)):
        dataset = catalog.create(name)
        graph = ingest_graph(dataset, source, IngestOptions(), cluster)
        if tasks is not None:
            with pytest.raises(StoppedError):
                transpose_graph(dataset, graph, StoppingCluster(tasks, scratch))
            files = dataset.path.glob("transpose/*/.work/shuffle/spill/*/*/lanes-*")
            assert list(map(flip_bit, (path for path in files if path.stat().st_size)))
        found.append(transpose_graph(dataset, graph, cluster).artifact.digest)
    assert found[0] == found[1]
