"""What every rank of a training reads and holds, and what a checkpoint takes, for graphs that no machine can hold."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from scale.scale_graphs import CLASSES, GRAPHS, Described

from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.memory import project_new_training
from gnnloom.trainer.training.rehearsal.projection import TrainProjection
from gnnloom.trainer.training.rehearsal.shard_sizes import GridSizes, RowShardSizes, RowSizes, ShardSizes

ROW_ALGORITHMS, GRID_ALGORITHMS = ("p2p",), ("broadcast", "replicated", "summa", "split3d", "tensor3d")
#: Most memory of a rank, as a multiple of its share of the adjacency and of rows as wide as the widest layer.
HELD = 12
cases = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
RANKS = (1, 64, 1024)


def sizes(graph: Described, ranks: int, algorithm: str) -> ShardSizes:
    """The shards, as if nothing could be compressed; a rank of random parts stands for all."""
    common: dict[str, Any] = {
        "num_vertices": graph.num_vertices, "num_features": graph.width, "num_outputs": CLASSES,
        "symmetric": True, "weighted": False,
    }  # fmt: skip
    vertex_bytes = graph.num_vertices * (graph.row_bytes + 8)
    if algorithm in GRID_ALGORITHMS:
        variants = dict.fromkeys(("even", "odd"), graph.matrix_bytes)
        return GridSizes(nnz=graph.nnz, is_double=True, variant_bytes=variants, order_bytes=vertex_bytes, **common)
    halo = graph.halo_rows(ranks) // ranks
    read = (graph.matrix_bytes + vertex_bytes) // ranks + 16 * halo
    rank = RowShardSizes(-(-graph.num_vertices // ranks), halo, halo, graph.nnz // ranks, read)
    return RowSizes(ranks=(rank,), index_bytes=4, **common)


def projected(graph: Described, ranks: int, algorithm: str) -> TrainProjection:
    config = TrainConfig.of(
        catalog="c", dataset="d", algorithm=algorithm, ranks=ranks, hidden=(128, 128), epochs=10, threads=1
    )
    return project_new_training(config, sizes(graph, ranks, algorithm))


def copies(algorithm: str, ranks: int) -> float:
    """How often an algorithm keeps what others keep once: the length of an axis of its most even grid."""
    if algorithm == "replicated":
        return math.sqrt(ranks)
    return 2 * ranks ** (1 / 3) if algorithm in {"split3d", "tensor3d"} and ranks > 1 else 1


@cases
@pytest.mark.parametrize("algorithm", [*ROW_ALGORITHMS, *GRID_ALGORITHMS])
def test_a_rank_holds_a_multiple_of_its_own_share(graph: Described, algorithm: str) -> None:
    for ranks in RANKS:
        _check_held(graph, ranks, algorithm)


def _check_held(graph: Described, ranks: int, algorithm: str) -> None:
    plan = projected(graph, ranks, algorithm)
    exchanged = 2 * graph.halo_rows(ranks) // ranks if algorithm in ROW_ALGORITHMS else 0
    rows = graph.num_vertices // ranks + exchanged
    share = graph.matrix_bytes / ranks + rows * 4 * max(graph.width, CLASSES)
    # Blocks that are multiplied together arrive in buffers of a fixed size.
    buffers = 32 << 20 if algorithm in {"broadcast", "replicated"} else 0
    assert plan.peak_memory[0] - plan.process_memory <= HELD * copies(algorithm, ranks) * share + buffers


@cases
@pytest.mark.parametrize("algorithm", GRID_ALGORITHMS)
def test_a_rank_reads_its_share_of_a_grid(graph: Described, algorithm: str) -> None:
    # What a rank reads of row shards is its own shard, by definition.
    dataset = 2 * graph.matrix_bytes + graph.num_vertices * (graph.row_bytes + 8)
    for ranks in RANKS:
        plan = projected(graph, ranks, algorithm)
        assert plan.read_bytes <= 1.01 * copies(algorithm, ranks) * dataset / ranks, ranks


@pytest.mark.parametrize("algorithm", ROW_ALGORITHMS)
def test_a_rank_of_sixteen_times_the_graph_on_sixteen_times_the_ranks_holds_the_same(algorithm: str) -> None:
    small, large = Described("small", 10**8, 10**9, 128), Described("large", 16 * 10**8, 16 * 10**9, 128)
    of_small, of_large = projected(small, 64, algorithm), projected(large, 1024, algorithm)
    # With more parts, a row's neighbors are in other parts a little more often.
    assert of_large.peak_memory[0] <= 1.1 * of_small.peak_memory[0]
    assert of_large.read_bytes <= 1.1 * of_small.read_bytes


@cases
def test_checkpoints_depend_on_the_model_alone(graph: Described) -> None:
    widths = [graph.width, 128, 128, CLASSES]
    weights = sum(before * after + after for before, after in itertools.pairwise(widths))
    written = {
        projected(graph, ranks, algorithm).written_bytes for ranks in (1, 1024) for algorithm in ("p2p", "summa")
    }
    (checkpoints,) = written
    # Weights with both moments of Adam, in each of a few checkpoints, and a line of metrics per epoch.
    assert checkpoints <= 4 * 3 * 4 * 2 * weights + 10 * 1000
