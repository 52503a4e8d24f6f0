"""The counted rows and sums of an exchange equal minimum covers that SciPy finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.partition.measure import cover
from gnnloom.pipeline.partition.measure.cover import cover_phases, read_cover
from gnnloom.pipeline.partition.measure.volume import PartExchange
from gnnloom.pipeline.partition.options import partition_key
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shuffle.mapped_vectors import write_vector
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.format.artifact import ArtifactWriter
from support.graphs import random_adjacency, store_graph
from support.partitions import cover_sent, random_parts


def _count(graph: Graph, part: np.ndarray, parts: int, folder: Path, memory: int = 1 << 30) -> PartExchange:
    writer = ArtifactWriter(Path(mkdtemp(dir=folder)), "partition", "0" * 16)
    write_vector(folder / "parts", [part])
    phases = cover_phases(writer, graph.artifact.path, folder / "parts", GraphSizes.of(graph), parts, memory)
    run(phases, InProcessCluster(), writer)
    return read_cover(writer, parts)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("num_blocks", [1, 3])
def test_rows_and_sums_between_two_parts_are_those_of_a_minimum_cover(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, symmetric: bool, num_blocks: int
) -> None:
    # Several steps of a block, and several tasks that cover.
    monkeypatch.setattr(cover, "_ROUTED_NONZEROS", 100)
    monkeypatch.setattr(cover, "_TASK_NONZEROS", 150)
    adjacency = scipy.sparse.csr_array(random_adjacency(90, 500, 2, symmetric=symmetric))
    graph = store_graph(catalog.create("g"), adjacency, symmetric=symmetric, num_blocks=num_blocks)
    part = random_parts(90, 5, 1)
    exchange = _count(graph, part, 5, tmp_path)
    np.testing.assert_array_equal(exchange.matrix(), cover_sent(adjacency, part, 5))
    np.testing.assert_array_equal(exchange.transposed.matrix(), cover_sent(adjacency.T.tocsr(), part, 5))


def test_a_pair_that_does_not_fit_in_the_memory_is_refused_by_name(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(60, 900, 2, symmetric=True), symmetric=True)
    monkeypatch.setattr(cover, "_COVERED_BYTES", 1 << 30)
    with pytest.raises(BudgetError, match="parts 0 and 1") as caught:
        _count(graph, random_parts(60, 2, 1), 2, tmp_path)
    assert "--memory" in str(caught.value)


@pytest.mark.parametrize("parts", [1, 4])
def test_a_partition_counts_the_cover_only_if_asked(catalog: Catalog, parts: int) -> None:
    adjacency = scipy.sparse.csr_array(random_adjacency(80, 400, 2, symmetric=False))
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=False)
    plain = PartitionOptions(parts, "block")
    asked = replace(plain, exchange="cover")
    counted, usual = (partition_graph(dataset, graph, each, InProcessCluster()) for each in (asked, plain))
    assert counted.artifact.key == partition_key(graph.artifact.key, asked, 1 << 30) != usual.artifact.key
    assert np.array_equal(counted.part(), usual.part())
    forward, backward = (cover_sent(matrix, counted.part(), parts) for matrix in (adjacency, adjacency.T.tocsr()))
    quality = counted.quality
    assert (quality["volume_cover_total"], quality["volume_cover_backward_total"]) == (forward.sum(), backward.sum())
    assert quality["volume_cover_matrix"] == forward.tolist()
    assert quality["volume_cover_total"] <= quality["km1"]
    assert quality["messages_cover_total"] == quality["messages_total"]
    others = {name: value for name, value in quality.items() if "cover" not in name}
    assert others == usual.quality
