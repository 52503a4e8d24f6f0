"""The metrics of a run as rows, one per epoch: for tables of other programs, and for the Python API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.runs.figures import shown_epoch, shown_figures
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.interop.tables import ExportedColumn, Table

_EPOCH = "epoch"


def metrics_table(run: Run) -> Table:
    """Return the epochs, counted from 1, and every figure that was measured; those of some epochs only have gaps.

    A ``.npy`` file holds the losses.

    Raises:
        NotFoundError: the run has not finished an epoch.
    """
    rows = metrics_rows(run)
    if not rows:
        raise NotFoundError(f"{run.path}: no epoch has finished; there are no metrics yet")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = tuple(ExportedColumn(name, np.dtype(np.int64 if name == _EPOCH else np.float64)) for name in names)

    def pieces() -> Iterator[tuple[Any, ...]]:
        yield tuple([row.get(name) for row in rows] for name in names)

    return Table(columns, len(rows), pieces, ("loss",))


def metrics_rows(run: Run) -> list[dict[str, float]]:
    """Return ``epoch``, counted from 1, and every figure that was measured in it, for each finished epoch.

    Bytes and messages have a figure for their sum and one for each kind. Profiles are left out.

    Raises:
        CorruptError: the file of the metrics is damaged.
    """
    return [{_EPOCH: shown_epoch(line), **_figures(line)} for line in run.metrics()]


def _figures(line: Mapping[str, Any]) -> dict[str, float]:
    return {f"{name}_{kind.replace(' ', '_')}" if kind else name: number for name, kind, number in shown_figures(line)}
