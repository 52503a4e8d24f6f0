"""Where the functions of the API run the tasks of a stage."""

from __future__ import annotations

import os
from pathlib import Path

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import options_of, parse_bytes


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
