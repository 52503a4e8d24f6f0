"""Pictures over ranks: their time, memory, nonzeros and bytes read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from gnnloom.workflows.report.facts import COMPUTING, WAITING, RunFacts, is_row_shards, mean_ratio, shard_nonzeros
from gnnloom.workflows.report.pictures.hover import Spot, chosen, column_spots
from gnnloom.workflows.report.pictures.style import (
    Picture,
    color,
    draw_grid,
    draw_legend,
    in_bytes,
    in_counts,
    in_seconds,
    new_axes,
    whole_numbers,
)

#: Bars of at most this many ranks have gaps between them.
_SPACED_RANKS = 64
#: Axes of at most this many ranks label every rank.
_LABELED_RANKS = 16
_COMPUTING_COLORS = ("navy", "blue", "green", "sky")


def time_picture(facts: RunFacts) -> Picture | None:
    """Draw the time of every rank in a median epoch, by kind; None if the run was not profiled."""
    if not facts.rank_seconds:
        return None
    parts = split_seconds(facts.rank_seconds)
    _, unit = in_seconds(np.sum(list(parts.values()), axis=0))
    factor = 1e3 if unit == "ms" else 1.0
    figure, axes = new_axes()
    colors = dict(zip(COMPUTING.values(), _COMPUTING_COLORS, strict=True))
    colors |= {"communication": "orange", "waiting": "gray"}
    # A run on the whole graph samples nothing.
    drawn = {name: seconds * factor for name, seconds in parts.items() if name != "sampling" or seconds.any()}
    _stack(axes, drawn, colors)
    axes.set_ylabel(f"{unit} per epoch")
    totals = {name: float(seconds.mean()) for name, seconds in parts.items()}
    whole = sum(totals.values()) or 1.0
    computing = sum(totals[name] for name in COMPUTING.values())
    note = (
        f"Mean over ranks: {computing / whole:.0%} computing, {totals['communication'] / whole:.0%} communication,"
        f" {totals['waiting'] / whole:.0%} waiting for other ranks, in a median epoch."
    )
    spots = _spots({name: seconds * factor for name, seconds in parts.items()}, unit)
    return Picture("time", "Time of each rank", figure, note, spots)


def split_seconds(ranks: Sequence[Mapping[str, float]]) -> dict[str, NDArray[np.float64]]:
    """Split the profiles of ranks into (rank,) float64 seconds by label: kinds of computing, communication, waiting."""
    parts = {text: np.array([rank.get(name, 0.0) for rank in ranks]) for name, text in COMPUTING.items()}
    known = {*COMPUTING, WAITING}
    sending = [sum(seconds for name, seconds in rank.items() if name not in known) for rank in ranks]
    return parts | {"communication": np.array(sending), "waiting": np.array([rank.get(WAITING, 0.0) for rank in ranks])}


def memory_picture(facts: RunFacts) -> Picture | None:
    """Draw the peak memory of every rank; None if the run has not finished, or for a single rank."""
    peaks = facts.result.get("peak_memory")
    if not peaks or len(peaks) == 1:
        return None
    return _bytes_picture("memory", "Peak memory per rank", peaks, "green", "Resident memory, with Python and torch")


def reading_picture(facts: RunFacts) -> Picture | None:
    """Draw the bytes that every rank read; None if the run has not finished, or for a single rank."""
    read = facts.result.get("bytes_read")
    if not read or len(read) == 1:
        return None
    note = "Compressed bytes"
    if facts.shards is not None:
        share = np.mean(read) / max(1, facts.shards.stored_bytes())
        note = f"Mean: {share:.1%} of the shards, in compressed bytes"
    return _bytes_picture("reading", "Bytes read per rank", read, "purple", note)


def _bytes_picture(name: str, title: str, values: ArrayLike, shade: str, note: str) -> Picture:
    scaled, unit = in_bytes(values)
    figure, axes = new_axes()
    _stack(axes, {"": scaled}, {"": shade})
    axes.set_ylabel(unit)
    mean = float(scaled.mean())
    axes.axhline(mean, color=color("ink"), linewidth=0.9, linestyle=(0, (4, 3)), label=f"mean  {mean:.4g} {unit}")
    draw_legend(axes)
    note = f"{note}. Maximum over mean: {mean_ratio(scaled):.2f}."
    return Picture(name, title, figure, note, _spots({"": scaled}, unit))


def nonzeros_picture(facts: RunFacts) -> Picture | None:
    """Draw the nonzeros of row shards; None for a single shard, or grid shards (see ``heat``)."""
    if facts.shards is None or not is_row_shards(facts.shards):
        return None
    nonzeros = shard_nonzeros(facts.shards)
    if len(nonzeros) == 1:
        return None
    sums = nonzeros.sum(1)
    _, unit = in_counts(sums)
    # One factor for both, so that the stacked bars keep their sum.
    own, halo = (nonzeros * (in_counts(sums)[0].max() / max(1, sums.max()))).T
    figure, axes = new_axes()
    _stack(axes, {"own columns": own, "halo columns": halo}, {"own columns": "blue", "halo columns": "orange"})
    axes.set_ylabel(f"{unit}nonzeros")
    note = f"Maximum over mean: {mean_ratio(sums):.2f}. Halo columns are vertices of other ranks."
    spots = _spots({"own columns": own, "halo columns": halo}, f"{unit}nonzeros")
    return Picture("nonzeros", "Nonzeros per shard", figure, note, spots)


def _stack(axes: Axes, parts: Mapping[str, NDArray[np.float64]], colors: Mapping[str, str]) -> None:
    """Draw stacked bars, one stack per rank, or filled steps if there are many ranks."""
    below: NDArray[np.float64] = np.zeros(len(next(iter(parts.values()))))
    ranks = np.arange(len(below))
    few = len(ranks) <= _SPACED_RANKS
    for name, values in parts.items():
        above = below + values
        if few:
            # Narrower bars for few ranks, because a single one would otherwise fill most of the picture.
            axes.bar(
                ranks, values, bottom=below, width=min(0.72, 0.12 * len(ranks)), color=color(colors[name]), label=name
            )
        else:
            # One outline for all ranks: hundreds of bars would blur, and each would be an element of the page.
            axes.fill_between(ranks, below, above, step="mid", color=color(colors[name]), linewidth=0, label=name)
        below = above
    axes.set_xlim(-0.6, len(ranks) - 0.4)
    if len(ranks) <= _LABELED_RANKS:
        axes.set_xticks(ranks)
    else:
        whole_numbers(axes)
    axes.set_ylim(0, 1.1 * float(below.max(initial=0)) or 1.0)
    axes.set_xlabel("rank")
    draw_grid(axes)
    if len(parts) > 1:
        draw_legend(axes, 3)


def _spots(parts: Mapping[str, NDArray[np.float64]], unit: str) -> list[Spot]:
    """Return spots with the values of a rank, for evenly chosen ranks, and their sum if there are several parts."""
    ranks = chosen(len(next(iter(parts.values()))))
    named = dict(parts) if len(parts) == 1 else {**parts, "sum": np.sum(list(parts.values()), axis=0)}
    lines = [
        (f"rank {rank:,}", *(f"{name}  {values[rank]:.4g} {unit}".strip() for name, values in named.items()))
        for rank in ranks.tolist()
    ]
    return column_spots(ranks.astype(np.float64), lines)
