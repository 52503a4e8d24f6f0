"""The shares of a mini-batch fit each other, and send what a stochastic partition forecasts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.whole_graph import read_whole_graph
from gnnloom.storage.sampling.vertex import VertexSampler
from gnnloom.storage.shards.row_shards import RowShards
from gnnloom.trainer.data.batch_share import EpochShare
from gnnloom.trainer.place.place import Place
from support.graphs import random_adjacency, store_graph

N, SIZE, PARTS = 200, 20, 3


def stored(catalog: Catalog, *, symmetric: bool, options: PartitionOptions) -> tuple[scipy.sparse.csr_array, RowShards]:
    adjacency = random_adjacency(N, 2 * N, 1, symmetric=symmetric)
    dataset, cluster = catalog.create("web"), InProcessCluster()
    graph = store_graph(dataset, adjacency, symmetric=symmetric)
    return adjacency, shard_rows(dataset, partition_graph(dataset, graph, options, cluster), cluster)


def shares(shards: RowShards, epoch: int) -> list[EpochShare]:
    found = []
    for rank in range(shards.num_parts):
        shard = shards.shard(rank)
        matrix = shard.matrix()
        transpose = matrix if shards.symmetric else shard.matrix(transpose=True)
        found.append(EpochShare(shard.vertex(), matrix, transpose, N, SIZE, 5, epoch))
    return found


@pytest.mark.parametrize("symmetric", [True, False])
def test_shares_are_the_rows_of_the_induced_graph_and_lists_fit_each_other(catalog: Catalog, symmetric: bool) -> None:
    adjacency, shards = stored(catalog, symmetric=symmetric, options=PartitionOptions(PARTS, "random", seed=2))
    sampler = VertexSampler(read_whole_graph(catalog["web"].graph()), 5, SIZE)
    dense = adjacency.toarray()
    for batch in (0, 4, 9):
        ids = sampler.draw(3, batch)
        rows = [share.rows(batch, "none", Place()) for share in shares(shards, 3)]
        assert sorted(np.concatenate([each.vertex for each in rows])) == ids.tolist()
        for side, whole in (("matrix", dense), ("transpose", dense.T)):
            matrices = [getattr(each, side) for each in rows]
            for rank, (each, matrix) in enumerate(zip(rows, matrices, strict=True)):
                found = np.zeros((len(each.vertex), N))
                for block, columns in ((matrix.own, each.vertex), (matrix.halo, matrix.halo_vertex)):
                    row = np.repeat(np.arange(block.num_rows), np.diff(block.indptr))
                    found[row, columns[block.indices]] = 1
                    # Every column of the halo is needed: nothing is sent in vain.
                    assert block is matrix.own or len(np.unique(block.indices)) == len(columns)
                in_batch = np.isin(np.arange(N), ids)
                np.testing.assert_array_equal(found, (whole[each.vertex] != 0) * in_batch)
                for other, sender in enumerate(matrices):
                    sent = sender.send_row[sender.send_offset[rank] : sender.send_offset[rank + 1]]
                    wanted = matrix.halo_vertex[matrix.halo_offset[other] : matrix.halo_offset[other + 1]]
                    assert rows[other].vertex[sent].tolist() == wanted.tolist()


@pytest.mark.long
def test_batches_send_the_rows_that_the_stochastic_partition_forecast(catalog: Catalog) -> None:
    options = PartitionOptions(PARTS, model="stochastic", batch_rate=SIZE / N)
    _, shards = stored(catalog, symmetric=True, options=options)
    quality = catalog["web"].partition(PARTS).artifact.facts["quality"]
    chosen = {"stochastic": "batch_volume_expected", "hypergraph": "batch_volume_full_expected"}
    forecast = quality[chosen[quality["batch_model"]]]
    sent = [
        sum(len(share.rows(batch, "none", Place()).matrix.send_row) for share in epoch)
        for epoch in (shares(shards, number) for number in range(25))
        for batch in range(N // SIZE)
    ]
    assert abs(np.mean(sent) - forecast) < 4.5 * np.std(sent) / np.sqrt(len(sent))
