"""A tiny graph for `gnnloom doctor`, and a complete run on one for `gnnloom check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset, Graph
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.wording import counted
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch

#: Largest difference between the losses on one rank and on several ranks: float64 sums in another order.
TOLERANCE = 1e-9
_EPOCHS = 10


@dataclass(frozen=True)
class ExampleStep:
    """A finished step: its name, its result, and the seconds that it took, if they were measured."""

    name: str
    found: str
    seconds: float = 0.0


def tiny_model(num_vertices: int) -> StochasticBlockModel:
    """Return a graph of four groups with 8 features, and ten edges per vertex."""
    return StochasticBlockModel(
        num_vertices=num_vertices, num_edges=10 * num_vertices, num_blocks=4, num_features=8, seed=1
    )


def store_tiny_graph(dataset: Dataset) -> Graph:
    """Store an undirected graph of 64 vertices, or find it if it was stored before."""
    return ingest_graph(dataset, tiny_model(64).edges(), IngestOptions(undirected=True), InProcessCluster())


def run_tiny_example(folder: Path, ranks: int = 2) -> Iterator[ExampleStep]:
    """Generate, partition, shard, train on one rank and on several, compare and verify; yield each finished step.

    Args:
        folder: the catalog's folder, which the caller removes.

    Raises:
        GnnloomError: a step failed.
        CorruptError: the losses differ.
    """
    # Starting worker processes would take longer than all the tasks.
    cluster = InProcessCluster()
    dataset = Catalog(folder).create("check")
    model = tiny_model(400)
    graph = ingest_graph(dataset, model.edges(), IngestOptions(undirected=True), cluster)
    ingest_vertices(dataset, model.vertices(), cluster)
    yield ExampleStep("generate", f"{counted(graph.num_vertices, 'vertex')}, {counted(graph.nnz, 'nonzero')}")
    losses = {}
    for count in (1, ranks):
        # A single part needs no partitioner.
        method = "block" if count == 1 else "mtkahypar"
        partition = partition_graph(dataset, graph, PartitionOptions(count, method), cluster)
        yield ExampleStep(f"partition into {count}", f"{method}, km1 {partition.quality['km1']:,}")
        shards = shard_rows(dataset, partition, cluster)
        yield ExampleStep(f"shard into {count}", f"{shards.artifact.stored_bytes():,} bytes")
        losses[count] = _train(dataset, count)
        yield ExampleStep(f"train on {count}", f"loss {losses[count][0]:.6f} to {losses[count][-1]:.6f}")
    yield ExampleStep("compare", _compare(losses[1], losses[ranks]))
    yield ExampleStep("verify", f"{_verify(dataset)} arrays are intact")


def _train(dataset: Dataset, ranks: int) -> list[float]:
    config = TrainConfig.of(
        catalog=str(dataset.path.parent),
        dataset=dataset.name,
        ranks=ranks,
        hidden=(16,),
        epochs=_EPOCHS,
        # In float32, rounding would hide small errors.
        precision="float64",
        run=f"ranks-{ranks}",
    )
    return [float(loss) for loss in launch(config)["loss"]]


def _compare(one: list[float], several: list[float]) -> str:
    difference = float(np.abs(np.subtract(one, several)).max())
    # Not `difference > TOLERANCE`, which is false for NaN.
    if not difference <= TOLERANCE:
        raise CorruptError(
            f"the losses of one rank and of several differ by {difference:.2e}, more than {TOLERANCE:.0e}; the MPI or"
            " torch installation gives wrong results; run `gnnloom doctor`"
        )
    return f"losses differ by at most {difference:.1e}"


def _verify(dataset: Dataset) -> int:
    arrays = 0
    for info in dataset.artifacts():
        artifact = Artifact(info.path)
        arrays += artifact.verify()
        check_artifact(dataset, artifact)
    return arrays
