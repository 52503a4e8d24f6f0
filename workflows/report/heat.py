"""Heat maps: who sends how much to whom, and the nonzeros of a grid's blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gnnloom.workflows.report.facts import RunFacts, is_row_shards, mean_ratio, shard_nonzeros
from gnnloom.workflows.report.style import Picture, color, in_bytes, in_counts, new_axes

#: Up to this many rows and columns every cell shows its number.
_LABELLED = 10
_HEIGHT = 4.2
_COLOURS = "viridis"


def bytes_picture(facts: RunFacts) -> Picture | None:
    """Bytes that every rank sends to every other in an epoch; None where they were not counted, or of one rank."""
    between = facts.bytes_between
    if between is None or len(between) == 1:
        return None
    scaled, unit = in_bytes(between)
    (total,), total_unit = in_bytes([between.sum()])
    note = f"In all {total:,.4g} {total_unit}. Collectives count as rings: each rank sends to the next of its group."
    return _matrix_picture("communication", "Sent between ranks in an epoch", scaled, unit, note)


def rows_picture(facts: RunFacts) -> Picture | None:
    """Rows that the parts of row shards exchange for one product; None for grid shards, or one part."""
    between = facts.rows_between
    if between is None or len(between) == 1:
        return None
    scaled, unit = in_counts(between)
    note = f"In all {between.sum():,} rows, for every layer that multiplies with the adjacency."
    return _matrix_picture("halo", "Rows sent between ranks for a product", scaled, f"{unit}rows", note)


def _matrix_picture(name: str, title: str, values: NDArray[np.float64], unit: str, note: str) -> Picture:
    """From ranks to ranks; the diagonal stays blank."""
    figure, axes = new_axes(height=_HEIGHT)
    _draw(figure, axes, np.where(np.eye(len(values), dtype=bool), np.nan, values), unit)
    axes.set_xlabel("receiver")
    axes.set_ylabel("sender")
    return Picture(name, title, figure, note)


def blocks_picture(facts: RunFacts) -> Picture | None:
    """Nonzeros of every block of grid shards; None for others."""
    if facts.shards is None or is_row_shards(facts.shards):
        return None
    nonzeros = shard_nonzeros(facts.shards)
    scaled, unit = in_counts(nonzeros)
    figure, axes = new_axes(height=_HEIGHT)
    _draw(figure, axes, scaled, f"{unit}nonzeros")
    axes.set_xlabel("block of columns")
    axes.set_ylabel("block of rows")
    note = f"Largest over mean: {mean_ratio(nonzeros):.2f}. Permutation: {facts.shards.parameters['permutation']}."
    return Picture("nonzeros", "Nonzeros of a block", figure, note)


def _draw(figure: Figure, axes: Axes, values: NDArray[np.float64], unit: str) -> None:
    """A matrix with row 0 above; NaN stays blank."""
    top = float(np.nanmax(values))
    image = axes.imshow(values, cmap=_COLOURS, vmin=0, vmax=top or 1.0, interpolation="none", aspect="equal")
    bar = figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(color=color("line"), labelcolor=color("muted"), labelsize=8.5, length=3)
    bar.set_label(unit, color=color("muted"), fontsize=9)
    for ticks in (axes.xaxis, axes.yaxis):
        ticks.set_major_locator(MaxNLocator(integer=True, nbins=8))
    if max(values.shape) <= _LABELLED:
        _label_cells(axes, values, top)


def _label_cells(axes: Axes, values: NDArray[np.float64], top: float) -> None:
    axes.set_xticks(range(values.shape[1]))
    axes.set_yticks(range(values.shape[0]))
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            shade = "#000000" if value > 0.6 * top else "#ffffff"
            axes.text(column, row, _number(value), ha="center", va="center", color=shade, fontsize=8)


def _number(value: float) -> Any:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
