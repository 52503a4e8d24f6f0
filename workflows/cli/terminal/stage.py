"""Common options and output of commands of stages: where tasks run, a plan instead of a run, and a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import Any, Final, Protocol

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.sources.understood import Understood
from gnnloom.storage.format.artifact import Artifact
from gnnloom.workflows.cli.terminal.options import QUIET, flag_option, json_option, object_option
from gnnloom.workflows.cli.terminal.output import show, show_json
from gnnloom.workflows.cli.terminal.progress import shown_progress

#: Help of ``--plan`` for stages that cannot predict their time.
PLAN: Final = "Only print the requirements: tasks, memory and disk space."


def stage_options(plan: str = PLAN, *, quiet: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ``--plan``, ``--json`` and the options of the cluster, which the command gets as ``cluster``.

    Args:
        plan: help of ``--plan``.
        quiet: add ``--quiet``, too.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        def with_cluster(*, cluster: ClusterOptions, **given: Any) -> None:
            command(cluster=replace(cluster, kind="address" if cluster.address else "local"), **given)

        found = object_option("cluster", ClusterOptions)(update_wrapper(with_cluster, json_option(command)))
        found = flag_option("quiet", QUIET)(found) if quiet else found
        return flag_option("plan", plan)(found)

    return add


class _Projection(Protocol):
    """Projected needs of a stage."""

    def to_json(self) -> dict[str, Any]: ...


def show_stage(
    what: str,
    figures: str,
    *,
    plan: bool,
    project: Callable[[], _Projection],
    make: Callable[[], Mapping[str, Any]],
    understood: Sequence[Understood] = (),
) -> None:
    """Print the needs of a stage, or run the stage and print its result.

    Args:
        what: the result in words, such as ``links of web``.
        figures: the kind of figures of a plan, such as ``upper bounds``.
        make: runs the stage; returns the result.
        understood: how files are read, a part of a plan's JSON.
    """
    if plan:
        content, files = project().to_json(), [each.to_json() for each in understood]
        if not (files and show_json({**content, "files": files})):
            show(content, title=f"plan: {what} ({figures})")
        return
    with shown_progress():
        result = make()
    show(result, title=what)


def stored_result(dataset: str, artifact: Artifact, figures: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a stage: identifiers of the artifact, its figures, and its costs."""
    return {
        "dataset": dataset,
        "key": artifact.key,
        "digest": artifact.digest,
        **figures,
        "bytes": artifact.stored_bytes(),
        "seconds": sum(artifact.measured["task_seconds"].values()),
        "peak_memory": artifact.measured["peak_memory"],
    }
