"""Collects facts about a dataset from its catalog before training, and chooses an algorithm if a run leaves it open."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.task_config import TaskConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import missing_features
from gnnloom.trainer.planner.candidates import Plan, Situation, make_plans
from gnnloom.trainer.planner.describe import GraphFacts, count_training, covers_of, exchanges_of
from gnnloom.trainer.planner.law import KnownPartition
from gnnloom.trainer.planner.pair_steps import PairFacts
from gnnloom.trainer.planner.profile import LOCAL, open_profile
from gnnloom.trainer.tasks.open_links import open_links


def situation_of(
    dataset: Dataset,
    graph_key: str | None = None,
    num_training: int | None = None,
    config: TrainConfig | None = None,
) -> Situation:
    """Collect facts about a dataset; reads manifests, the split and the labels.

    Args:
        graph_key: chooses between several graphs; by default the graph without the links that the task reads.
        num_training: number of labeled training vertices, if already known: then split and labels are not read. Not
            needed by tasks on pairs.
        config: the training configuration; None for the default one, with the task that the vertex data suggest.

    Raises:
        NotFoundError: the dataset has no graph or no vertex data.
        InputError: the dataset lacks features or the task's labels, or has several graphs.
    """
    task, embed = (TaskConfig(), 0) if config is None else (config.task, config.model.embed)
    graph = dataset.graph(graph_key or task.message_graph(dataset))
    vertices = dataset.vertices(graph=graph.artifact.key)
    predicted = task.task_of(vertices.artifact, vertices, vertices.artifact.path)
    num_outputs = task.output_width(predicted, vertices)
    if not (embed or vertices.num_features) or not num_outputs:
        raise InputError(
            f"{vertices.artifact.path}: the dataset lacks features or labels; there is nothing to train"
            f"{missing_features(dataset.name) if num_outputs else ''}"
        )
    if config is not None and task.on_pairs:
        links = open_links(predicted, dataset, graph.artifact.key, task.links, graph.artifact.path)
        pairs = PairFacts.of(config, links.num_pairs["train"])
        # A step has only a part of an epoch's pairs.
        num_training = pairs.step_pairs
    else:
        pairs = None
    facts = GraphFacts(
        num_vertices=graph.num_vertices,
        nnz=graph.nnz,
        num_features=vertices.num_features,
        num_outputs=num_outputs,
        num_training=count_training(vertices) if num_training is None else num_training,
        symmetric=graph.symmetric,
        weighted=graph.weighted,
        one_class=predicted.couples_columns,
        pairs=pairs,
    )
    key = graph.artifact.key
    return Situation(facts, _partitions(dataset, key), _grid_heaviest(dataset, key))


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
            sizes = partition.num_parts, forward, back, heaviest
            found.append(KnownPartition(partition.method, info.key, *sizes, covers_of(partition)))
    return found


def _grid_heaviest(dataset: Dataset, graph: str) -> float:
    """The imbalance of the graph's grid shards; 1 without any: permutations balance them."""
    found = [1.0]
    for info in dataset.artifacts("shards"):
        is_grid = info.state == "complete" and info.parameters.get("layout") == "grid"
        if is_grid and info.inputs.get("graph") == graph:
            found += Artifact(info.path).facts["balance"].values()
    return max(found)


logger = logging.getLogger(__name__)


def settle_algorithm(given: Mapping[str, Any], ranks: int | None = None) -> dict[str, Any]:
    """The fields of a training run, with an algorithm and a grid in place of ``auto``; logs the reason.

    An existing run keeps its algorithm. Communicates nothing: every rank of a job finds the same result.

    Args:
        given: fields of the configuration, ``catalog`` and ``dataset`` among them.
        ranks: number of ranks, if it is not among the fields.

    Raises:
        InputError: a grid is given, too, or no algorithm that the planner knows has its shards and fits in memory.
    """
    fields = {name: value for name, value in given.items() if name != "algorithm"}
    if fields.get("grid") is not None:
        raise InputError("grid: belongs to an algorithm, and --algorithm auto chooses both; leave one of them out")
    dataset = Catalog(fields["catalog"]).dataset(fields["dataset"])
    if fields.get("run") is not None and Run(dataset.run_path(fields["run"])).exists:
        return fields
    config = TrainConfig.of(**{**fields, "ranks": fields.get("ranks") or ranks or 1})
    if config.mode.on_types:
        # Ranks map a graph with types, however it is planned.
        return fields
    profile = open_profile(Catalog(fields["catalog"]).root, LOCAL)
    plans = make_plans(config, situation_of(dataset, config=config), profile)
    plan = next((each for each in plans if each.fits and _has_shards(dataset, each)), None)
    if plan is None:
        raise InputError(
            f"algorithm auto: dataset {dataset.name} has no shards for {config.algorithm.ranks} ranks whose training"
            " fits in memory; `gnnloom plan` shows what would fit, and `gnnloom shard` makes shards"
        )
    logger.warning("%s", "; ".join(filter(None, (_reason(plan, plans), profile.note))))
    return {**fields, "algorithm": plan.config.algorithm.name, "grid": plan.config.algorithm.grid}


def _has_shards(dataset: Dataset, plan: Plan) -> bool:
    """Whether the shards that a plan reads exist, and belong to its partition."""
    config = plan.config.with_options(run=None)
    try:
        opened = config.algorithm.kind.reads.open(
            dataset, config.shard_request(dataset), 0, config.algorithm.ranks, ReadCounter()
        )
    except GnnloomError:
        return False
    made_from = opened.shards.artifact.inputs.get("partition", plan.partition_key)
    return not plan.partition_key or bool(made_from == plan.partition_key)


def _reason(plan: Plan, plans: list[Plan]) -> str:
    """The reason for the choice of a plan."""
    grid = "x".join(map(str, plan.grid))
    text = f"algorithm auto: {plan.config.algorithm.name} {grid}, predicted {plan.cost.total * 1e3:.3g} ms per epoch"
    other = next(
        (each for each in plans if each.config.algorithm.name != plan.config.algorithm.name and each.fits), None
    )
    if other is not None:
        text += (
            f"; next {other.config.algorithm.name} {'x'.join(map(str, other.grid))}, {other.cost.total * 1e3:.3g} ms"
        )
    return text
