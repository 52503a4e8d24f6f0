"""Heat maps: traffic between pairs of ranks, the nonzeros of a grid's blocks, and the confusion matrix of classes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from gnnloom.storage.wording import counted
from gnnloom.workflows.report.facts import RunFacts, is_row_shards, mean_ratio, scored_epoch, shard_nonzeros
from gnnloom.workflows.report.pictures.hover import Spot
from gnnloom.workflows.report.pictures.style import HEAT_HEIGHT, Picture, color, in_bytes, in_counts, new_axes

#: Matrices with at most this many rows and columns show numbers in their cells.
_LABELED = 10
#: Matrices with at most this many rows and columns show the number of a cell under the pointer.
_HOVERED = 24
#: Matrices of at most this many classes show a cell's counts under the pointer.
_HOVERED_CLASSES = 32
_COLORS = "viridis"


def bytes_picture(facts: RunFacts) -> Picture | None:
    """Draw the bytes that each rank sends to each other rank in an epoch; None if not counted, or for a single rank."""
    between = facts.bytes_between
    if between is None or len(between) == 1:
        return None
    scaled, unit = in_bytes(between)
    (total,), total_unit = in_bytes([between.sum()])
    note = f"Total: {total:,.4g} {total_unit}. Collectives count as rings: a rank sends to the next in its group."
    return _matrix_picture("communication", "Bytes sent between ranks per epoch", scaled, unit, note)


def rows_picture(facts: RunFacts) -> Picture | None:
    """Draw the rows that parts exchange for one product; None for grid shards, or a single part."""
    between = facts.rows_between
    if between is None or len(between) == 1:
        return None
    scaled, unit = in_counts(between)
    note = f"Total: {counted(int(between.sum()), 'row')}, for each layer that multiplies with the adjacency."
    return _matrix_picture("halo", "Rows sent between ranks per product", scaled, f"{unit}rows", note)


def _matrix_picture(name: str, title: str, values: NDArray[np.float64], unit: str, note: str) -> Picture:
    """Draw a matrix of senders and receivers; the diagonal stays blank."""
    figure, axes = new_axes(height=HEAT_HEIGHT)
    # A rank sends nothing to itself, and a zero would look like a measured value.
    values = np.where(np.eye(len(values), dtype=bool), np.nan, values)
    draw_matrix(figure, axes, values, unit)
    axes.set_xlabel("receiver")
    axes.set_ylabel("sender")
    return Picture(name, title, figure, note, cell_spots(values, unit, "sender", "receiver"))


def blocks_picture(facts: RunFacts) -> Picture | None:
    """Draw the nonzeros of the blocks of grid shards; None for other shards."""
    if facts.shards is None or is_row_shards(facts.shards):
        return None
    nonzeros = shard_nonzeros(facts.shards)
    scaled, unit = in_counts(nonzeros)
    figure, axes = new_axes(height=HEAT_HEIGHT)
    draw_matrix(figure, axes, scaled, f"{unit}nonzeros")
    axes.set_xlabel("column block")
    axes.set_ylabel("row block")
    note = f"Maximum over mean: {mean_ratio(nonzeros):.2f}. Permutation: {facts.shards.parameters['permutation']}."
    spots = cell_spots(scaled, f"{unit}nonzeros", "row block", "column block")
    return Picture("nonzeros", "Nonzeros per block", figure, note, spots)


def confusion_picture(facts: RunFacts) -> Picture | None:
    """Draw the confusion matrix of classes; None if the run did not record it."""
    stored = facts.result.get("confusion")
    if not stored:
        return None
    counts = np.array(stored, np.int64)
    sums = counts.sum(1, keepdims=True)
    # Shares of the true class; otherwise a large class would dominate all others.
    shares = counts / np.maximum(1, sums)
    figure, axes = new_axes(height=HEAT_HEIGHT)
    # Whole percentages fit into the cells.
    bar = draw_matrix(figure, axes, (100 * shares).round(), "share of the true class")
    bar.ax.yaxis.set_major_formatter(PercentFormatter(100, decimals=0))
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    right = np.trace(counts)
    share = f"{right:,} of {counted(int(counts.sum()), 'label')}"
    note = f"Percentages of the true class{scored_epoch(facts)}. The diagonal has {share}."
    return Picture("confusion", "Confusion matrix", figure, note, _confusion_spots(facts, counts, shares))


def _confusion_spots(facts: RunFacts, counts: NDArray[np.int64], shares: NDArray[np.float64]) -> list[Spot]:
    if len(counts) > _HOVERED_CLASSES:
        return []
    return [
        _cell(
            row,
            column,
            f"class {facts.class_label(row)} predicted as {facts.class_label(column)}",
            f"{counted(int(count), 'label')}, {shares[row, column]:.1%}",
        )
        for (row, column), count in np.ndenumerate(counts)
    ]


def cell_spots(values: NDArray[np.float64], unit: str, row_name: str, column_name: str) -> list[Spot]:
    """Return a spot for every cell of a matrix; none for blank cells and for large matrices."""
    if max(values.shape) > _HOVERED:
        return []
    return [
        _cell(row, column, f"{row_name} {row}, {column_name} {column}", f"{value:,.4g} {unit}")
        for (row, column), value in np.ndenumerate(values)
        if not np.isnan(value)
    ]


def _cell(row: int, column: int, *lines: str) -> Spot:
    return Spot((column - 0.5, column + 0.5), (row + 0.5, row - 0.5), lines)


def draw_matrix(figure: Figure, axes: Axes, values: NDArray[np.float64], unit: str) -> Colorbar:
    """Draw a matrix with row 0 at the top; NaN stays blank."""
    top = float(np.nanmax(values))
    # From 0, so that equal colors mean equal shares of the maximum. Without interpolation, cells keep sharp borders.
    image = axes.imshow(values, cmap=_COLORS, vmin=0, vmax=top or 1.0, interpolation="none", aspect="equal")
    bar = figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(color=color("line"), labelcolor=color("muted"), labelsize=8.5, length=3)
    bar.set_label(unit, color=color("muted"), fontsize=9)
    bar.ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    for ticks in (axes.xaxis, axes.yaxis):
        ticks.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=[1, 2, 5, 10]))
    if max(values.shape) <= _LABELED:
        _label_cells(axes, values, top)
    return bar


def _label_cells(axes: Axes, values: NDArray[np.float64], top: float) -> None:
    axes.set_xticks(range(values.shape[1]))
    axes.set_yticks(range(values.shape[0]))
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            # Black on the bright end of the color map, white on the dark end.
            shade = "#000000" if value > 0.6 * top else "#ffffff"
            number = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
            axes.text(column, row, number, ha="center", va="center", color=shade, fontsize=8)
