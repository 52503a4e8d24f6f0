"""Chooses where functions of the API run the tasks of a stage."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage import Dataset, TypedGraph
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option, options_of, parse_memory
from gnnloom.workflows.api.options.keywords import check_known

Result = TypeVar("Result")
Options = TypeVar("Options")


#: The options that choose where the tasks of a stage run, by keyword.
CLUSTER: Final[dict[str, Option]] = {option.flag: option for option in options_of(ClusterOptions).values()}


def choose_cluster(options: Mapping[str, Any]) -> tuple[ClusterOptions, dict[str, Any]]:
    """Choose the cluster from the keywords of a function, which mean the same as the options of the commands.

    Returns:
        The cluster, and the other keywords.

    Raises:
        InputError: ``memory`` is not a size, or ``workers`` is negative.
    """
    given = {name: option.default for name, option in CLUSTER.items()} | dict(options)
    others = {name: value for name, value in options.items() if name not in CLUSTER}
    workers, memory, scheduler = given["workers"], given["memory"], given["scheduler"]
    if workers is not None and workers < 0:
        raise InputError(f"workers={workers}: expected 0 or more")
    size = parse_memory(memory) if isinstance(memory, str) else memory
    report = None if given["performance_report"] is None else Path(given["performance_report"])
    scratch = given["scratch"] or os.environ.get(CLUSTER["scratch"].variable or "")
    folder = None if scratch is None else Path(scratch)
    return ClusterOptions("address" if scheduler else "local", workers, size, scheduler, report, folder), others


def stage_options(
    function: str, options: Mapping[str, Any], kind: Callable[..., Options], known: Collection[str], *arguments: Any
) -> tuple[Options, ClusterOptions]:
    """The options of a stage and its cluster, from the keywords of a function.

    Args:
        kind: the dataclass of the options.
        known: names of the keywords, without the keywords of the cluster.
        arguments: values of the first fields of the dataclass, which are arguments of the function.

    Raises:
        InputError: a keyword is unknown, or a value is not allowed.
    """
    cluster, others = choose_cluster(options)
    check_known(function, others, known)
    return kind(*arguments, **others), cluster


def on_cluster(options: ClusterOptions, stage: Callable[[Cluster], Result]) -> Result:
    """Run a stage on a cluster that is open only during the call, and return the result of the stage."""
    with open_cluster(options) as cluster:
        return stage(cluster)


def stored_reverses(dataset: Dataset, graph: TypedGraph) -> Reverses:
    """The reverses of the relations of a graph with types; they are stored first if they do not exist."""
    # In this process, so that a script needs no `if __name__ == "__main__":`.
    return on_cluster(ClusterOptions(workers=0), lambda cluster: reverse_relations(dataset, graph, cluster))


def once_per_job(action: Callable[[], Result]) -> Result:
    """Make or find a result. Collective inside an MPI job: rank 0 acts first, then all other ranks.

    Args:
        action: makes an artifact, or finds it if it exists.
    """
    # Imported here, as the commands that use this file start no ranks.
    from gnnloom.trainer.job.ranks import ranks_of_job

    with ranks_of_job("a stage of the pipeline") as ranks:
        return ranks.first_before_others(action)
