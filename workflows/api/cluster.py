"""Chooses where functions of the API run the tasks of a stage."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.option import Option, options_of
from gnnloom.workflows.api.options.keywords import check_known

Result = TypeVar("Result")
Options = TypeVar("Options")


#: The options that choose where the tasks of a stage run, by keyword.
CLUSTER: Final[dict[str, Option]] = {option.flag: option for option in options_of(ClusterOptions).values()}


def choose_cluster(options: Mapping[str, Any]) -> tuple[ClusterOptions, dict[str, Any]]:
    """Choose the cluster from the keywords of a function, which have the same meaning as the options of the commands.

    Returns:
        The cluster, and the other keywords.

    Raises:
        InputError: ``memory`` is not a size, or ``workers`` is negative.
    """
    chosen, others = dict[str, Any](), dict(options)
    for name, option in options_of(ClusterOptions).items():
        value = others.pop(option.flag, None)
        # Without a value, as from an empty variable of a script. A path of "" would be the current folder.
        if value is None or value == "":
            value = os.environ.get(option.variable or "") or option.default
        # Strings have the same meaning as on the command line.
        chosen[name] = option.check(option.read(value) if isinstance(value, str) else value)
    return ClusterOptions("address" if chosen["address"] else "local", **chosen), others


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


def once_per_job(action: Callable[[], Result]) -> Result:
    """Make or find a result. Collective inside an MPI job: rank 0 acts first, then all other ranks.

    Args:
        action: makes an artifact, or finds it if it exists.
    """
    # Imported here because the commands that use this file start no ranks.
    from gnnloom.trainer.job.ranks import ranks_of_job

    with ranks_of_job("a stage of the pipeline") as ranks:
        return ranks.first_before_others(action)
