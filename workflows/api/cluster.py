"""Where the functions of the API run the tasks of a stage."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import options_of, parse_bytes

Result = TypeVar("Result")


def choose_cluster(
    workers: int | None,
    memory: int | str,
    scheduler: str | None,
    performance_report: Path | str | None,
    scratch: Path | str | None,
) -> ClusterOptions:
    """The cluster that the arguments of a function ask for; they mean what the options of the commands mean.

    Raises:
        InputError: ``memory`` is not a size, or ``workers`` is negative.
    """
    if workers is not None and workers < 0:
        raise InputError(f"workers={workers}: expected 0 or more")
    try:
        size = parse_bytes(memory) if isinstance(memory, str) else memory
    except ValueError as error:
        raise InputError(f"memory: {error}") from error
    report = None if performance_report is None else Path(performance_report)
    folder = scratch or os.environ.get(options_of(ClusterOptions)["scratch"].variable or "")
    aside = None if folder is None else Path(folder)
    return ClusterOptions("address" if scheduler else "local", workers, size, scheduler, report, aside)


def once_per_job(action: Callable[[], Result]) -> Result:
    """Make and find a result; inside an MPI job, where every rank calls it, on rank 0 first and then on all others.

    Args:
        action: makes an artifact, or finds it if it exists.
    """
    # Imported here, as the commands that use this file start no ranks.
    from gnnloom.trainer.job.ranks import ranks_of_job

    with ranks_of_job("a stage of the pipeline") as ranks:
        return ranks.first_before_others(action)
