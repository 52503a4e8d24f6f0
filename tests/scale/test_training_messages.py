"""How many messages a rank sends in an epoch, and how many bytes, from the steps that the algorithms state."""

from __future__ import annotations

import pytest
from scale.scale_graphs import CLASSES, GRAPHS, Described
from scale.test_training_start import GRID_ALGORITHMS, ROW_ALGORITHMS

from gnnloom.trainer.algorithms.steps import Volume
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.describe import GraphFacts, epoch_steps, workload
from gnnloom.trainer.planner.law import ExchangeLaw

HIDDEN = (128, 128)
#: Products with the adjacency, or its transpose, in an epoch of three layers; the first one's input gets no gradient.
MOST_PRODUCTS = 6
#: The bytes of a rank are inversely proportional to this power of the ranks (Tripathy et al., SC 2020; Singh, Bhatele,
#: SC 2025).
EXPONENTS = {"broadcast": 0.0, "replicated": 1 / 2, "summa": 1 / 2, "split3d": 2 / 3, "tensor3d": 2 / 3}
cases = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
algorithms = pytest.mark.parametrize("algorithm", [*ROW_ALGORITHMS, *GRID_ALGORITHMS])


def sent(graph: Described, ranks: int, algorithm: str) -> tuple[float, float]:
    """Messages and bytes that a rank sends in an epoch, on average. Parts are random, which is the worst case."""
    config = TrainConfig.of(catalog="c", dataset="d", algorithm=algorithm, ranks=ranks, hidden=HIDDEN, threads=1)
    facts = GraphFacts(
        num_vertices=graph.num_vertices,
        nnz=graph.nnz,
        num_features=graph.width,
        num_outputs=CLASSES,
        num_training=graph.num_vertices // 10,
    )
    exchange = ExchangeLaw.fitted(graph.num_vertices, graph.nnz, []).at(ranks) if algorithm in ROW_ALGORITHMS else None
    work = workload(config, facts, None if exchange is None else (exchange, exchange))
    volume = Volume.of(epoch_steps(config.algorithm, work))
    return sum(volume.messages.values()) / ranks, sum(volume.bytes.values()) / ranks


@algorithms
def test_a_single_rank_sends_nothing(algorithm: str) -> None:
    assert [sent(graph, 1, algorithm) for graph in GRAPHS] == [(0, 0)] * len(GRAPHS)


@algorithms
@pytest.mark.parametrize("ranks", [64, 1024])
def test_messages_grow_with_the_ranks_and_not_with_the_graph(ranks: int, algorithm: str) -> None:
    # Blocks of other sizes share bounds with other ranks when rows move between the orders of the 3D grid.
    tolerance = 0.05 if algorithm == "split3d" else 1e-9
    for graph in GRAPHS:
        messages, _ = sent(graph, ranks, algorithm)
        # In a product, a rank sends to each other one at most once; sums over all ranks send twice.
        assert messages <= (MOST_PRODUCTS + 2) * (ranks - 1), graph.name
        larger = Described("larger", 16 * graph.num_vertices, 16 * graph.nnz, graph.width)
        assert sent(larger, ranks, algorithm)[0] == pytest.approx(messages, rel=tolerance), graph.name


@pytest.mark.parametrize(("algorithm", "exponent"), EXPONENTS.items())
@pytest.mark.parametrize("ranks", [64, 1024])
def test_bytes_of_a_rank_shrink_as_the_papers_say(ranks: int, algorithm: str, exponent: float) -> None:
    for graph in GRAPHS:
        _, num_bytes = sent(graph, ranks, algorithm)
        rows = graph.num_vertices * 4 * max(graph.width, CLASSES, *HIDDEN)
        # Each product moves its operand and its result. 1024 is not a cube: 16 x 8 x 8 ranks send slightly more.
        assert num_bytes <= 2.1 * MOST_PRODUCTS * rows / ranks**exponent, graph.name


@cases
@pytest.mark.parametrize("ranks", [64, 1024])
def test_a_rank_of_row_shards_sends_no_row_twice_to_a_rank_and_none_that_no_edge_needs(
    graph: Described, ranks: int
) -> None:
    _, num_bytes = sent(graph, ranks, "p2p")
    row = 4 * max(graph.width, CLASSES, *HIDDEN)
    assert num_bytes <= 1.01 * MOST_PRODUCTS * row * min(graph.num_vertices, graph.nnz / ranks)
