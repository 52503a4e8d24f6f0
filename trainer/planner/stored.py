"""What a catalog knows about a dataset before a training: its graph, its vertex data, and its partitions."""

from __future__ import annotations

from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.trainer.planner.candidates import Situation
from gnnloom.trainer.planner.describe import GraphFacts, count_training, exchanges_of
from gnnloom.trainer.planner.law import KnownPartition


def situation_of(dataset: Dataset, graph_key: str | None = None, num_training: int | None = None) -> Situation:
    """What is known about a dataset; reads manifests, the split and the labels.

    Args:
        graph_key: chooses between several graphs.
        num_training: labeled training vertices, if they are known already: then split and labels are not read.

    Raises:
        NotFoundError: the dataset has no graph or no vertex data.
        InputError: it lacks features or labels, or has several graphs.
    """
    graph = dataset.graph(graph_key)
    vertices = dataset.vertices(graph=graph.artifact.key)
    num_outputs = vertices.num_targets or vertices.num_classes
    if not vertices.num_features or not num_outputs:
        raise InputError(f"{vertices.artifact.path}: the dataset lacks features or labels; there is nothing to train")
    facts = GraphFacts(
        num_vertices=graph.num_vertices,
        nnz=graph.nnz,
        num_features=vertices.num_features,
        num_outputs=num_outputs,
        num_training=count_training(vertices) if num_training is None else num_training,
        symmetric=graph.symmetric,
        weighted=graph.weighted,
        one_class=_has_one_class(vertices),
    )
    key = graph.artifact.key
    return Situation(facts, _partitions(dataset, key), _grid_heaviest(dataset, key))


def _has_one_class(vertices: Vertices) -> bool:
    return vertices.has_label and not vertices.num_targets


def _partitions(dataset: Dataset, graph: str) -> list[KnownPartition]:
    """The measured partitions of a graph."""
    found = []
    for info in dataset.artifacts("partition"):
        if info.state != "complete" or info.inputs.get("graph") != graph:
            continue
        partition = Partition(Artifact(info.path))
        if "volume_total" in partition.quality:
            forward, back = exchanges_of(partition)
            heaviest = 1.0 + partition.quality["imbalance"]
            found.append(KnownPartition(partition.method, info.key, partition.num_parts, forward, back, heaviest))
    return found


def _grid_heaviest(dataset: Dataset, graph: str) -> float:
    """The imbalance of the graph's grid shards; 1 without any: permutations balance them."""
    found = [1.0]
    for info in dataset.artifacts("shards"):
        is_grid = info.state == "complete" and info.parameters.get("layout") == "grid"
        if is_grid and info.inputs.get("graph") == graph:
            found += Artifact(info.path).facts["balance"].values()
    return max(found)
