"""The metrics of a run as a table, one row per epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.interop.tables import Column, Table

_EPOCH = "epoch"


def metrics_table(run: Run) -> Table:
    """Return the epochs, counted from 1, and every figure that was measured; those of some epochs only have gaps.

    Bytes and messages have a column for their sum and one for each kind. Profiles are left out. A ``.npy`` file holds
    the losses.

    Raises:
        NotFoundError: the run has not finished an epoch.
    """
    rows = [{_EPOCH: line[_EPOCH] + 1, **_figures(line)} for line in run.metrics()]
    if not rows:
        raise NotFoundError(f"{run.path}: no epoch has finished; there are no metrics yet")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = tuple(Column(name, np.dtype(np.int64 if name == _EPOCH else np.float64)) for name in names)

    def pieces() -> Iterator[tuple[Any, ...]]:
        yield tuple([row.get(name) for row in rows] for name in names)

    return Table(columns, len(rows), pieces, ("loss",))


def _figures(line: Mapping[str, Any]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, Mapping):
            figures[name] = float(sum(value.values()))
            figures |= {f"{name}_{kind.replace(' ', '_')}": float(count) for kind, count in value.items()}
        elif isinstance(value, int | float) and name != _EPOCH:
            figures[name] = float(value)
    return figures
