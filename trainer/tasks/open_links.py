"""Opens the links that a task on pairs reads: the links that hold out edges of the graph of the run's shards."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from gnnloom.storage.artifacts.links import CLASS, NUMBER, Links
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted, shell_command
from gnnloom.trainer.tasks.task import Task

#: What pairs have by the kind of their values.
_HAS: Final = {CLASS: "classes", NUMBER: "numbers"}


def open_links(task: Task, dataset: Dataset, graph: str, key: str | None, shards: Path) -> Links:
    """Open the links of a run. Communicates nothing.

    Args:
        graph: key of the graph that the run multiplies with.
        key: of the links; None for the only ones.
        shards: folder of the shards that the run reads, for errors.

    Raises:
        NotFoundError: the dataset has no links with this key.
        InputError: it has none at all, or several; they belong to another graph, or lack what the task predicts.
    """
    keys = [info.key for info in dataset.artifacts("links") if info.state == "complete"] if key is None else [key]
    found = [dataset.links(each) for each in keys]
    fitting = [each for each in found if each.message_graph == graph]
    if not found:
        raise InputError(f"dataset {dataset.name} has no links; make some with `gnnloom links {dataset.name} random`")
    if not fitting:
        graphs = " or ".join(f"`{shell_command('--graph', each.message_graph)}`" for each in found)
        raise InputError(
            f"{shards}: shards of graph {graph}, which has the edges that the links hold out; partition and shard"
            f" the graph without them, with {graphs}"
        )
    if len(fitting) > 1:
        keys = [each.artifact.key for each in fitting]
        raise InputError(f"links: dataset {dataset.name} has several of graph {graph}: choose one of {', '.join(keys)}")
    (links,) = fitting
    if task.value and links.kind != task.value:
        remedy = ""
        if links.relation is not None:
            of_relation = "random", "--relation", links.relation.name, "--values", task.value
            remedy = f"; `{shell_command('gnnloom', 'links', dataset.name, *of_relation)}` makes links that have them"
        raise InputError(
            f"{links.artifact.path}: task {task.name} predicts a {task.value}, but the pairs have"
            f" {_HAS.get(links.kind, 'no values')}{remedy}"
        )
    return links


def check_step(dataset: Dataset, links: Links, pairs: int) -> None:
    """Check that a step on the whole graph that excludes its pairs leaves edges to multiply with.

    Args:
        pairs: training pairs of a step; 0 for a choice that leaves some.

    Raises:
        InputError: the step excludes all edges but loops.
    """
    if not pairs or pairs < links.num_pairs["train"] or not _are_all_edges(dataset, links):
        return
    raise InputError(
        f"{links.artifact.path}: a step on all {counted(links.num_pairs['train'], 'training pair')} excludes all edges"
        " of the graph, and leaves an empty graph; train on fewer pairs per step (--link-batch), keep their edges"
        f" (--no-exclude-targets), or make pairs that are not edges of the graph, `gnnloom links {dataset.name} random"
        " --disjoint 0.3`"
    )


def _are_all_edges(dataset: Dataset, links: Links) -> bool:
    """Whether the training pairs are known to be all edges of the graph that the model reads, but for loops."""
    facts = links.artifact.facts
    if facts["train_held_out"]:
        return False
    # If no training pairs were given, the training pairs are the remaining edges of the graph.
    edges = facts.get("edges", {}).get("train/pair")
    if edges is None:
        return True
    graphs = {info.key: info for info in dataset.artifacts("graph") if info.state == "complete"}
    origin, message = (graphs.get(key) for key in (dataset.origin(links.graph), links.message_graph))
    if origin is None or message is None or origin.parameters.get("self_loops") != "add":
        return False
    if links.together:
        # Those pairs count whose reverses are edges, too.
        edges = sum(int(np.count_nonzero(some)) for some in links.artifact.array("train/weight").chunks())
    entries = edges * (2 if links.symmetric else 1)
    return bool(entries >= dataset.graph(links.message_graph).nnz - links.num_vertices)
