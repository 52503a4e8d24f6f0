"""Pictures over epochs, for one run or several: loss, accuracy, and time per epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from gnnloom.workflows.report.facts import SCORES, SPLITS, RunFacts
from gnnloom.workflows.report.style import (
    SERIES,
    Picture,
    color,
    draw_grid,
    draw_legend,
    in_seconds,
    new_axes,
    whole_numbers,
)

#: Most points of a line; medians stand for runs of more epochs. More points would be closer than the line is wide.
_MOST_POINTS = 400
#: Lines with at most this many points have markers.
_MARKED_POINTS = 25
#: A loss that falls by a larger factor is drawn on a logarithmic axis.
_LOGARITHMIC = 30.0

Curve = tuple[NDArray[np.int64], NDArray[np.float64]]


def loss_picture(runs: Sequence[RunFacts]) -> Picture:
    """Draw the training loss."""
    curves = {_label(facts, runs, "training"): facts.curve("loss") for facts in runs}
    figure, axes = new_axes()
    _draw(axes, curves, {name: f"{name}  {values[-1]:.4f}" for name, (_, values) in curves.items()})
    values = np.concatenate([curve[1] for curve in curves.values()])
    if values.min() > 0 and values.max() > _LOGARITHMIC * values.min():
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_ylabel("cross-entropy")
    return Picture("loss", "Loss", figure)


def accuracy_picture(runs: Sequence[RunFacts]) -> Picture | None:
    """Draw accuracy (or F1) on every split, for several runs on the test split; None if it was never measured."""
    score = runs[0].score
    if len(runs) == 1:
        curves = {text: runs[0].curve(f"{split}_{score}") for split, text in SPLITS.items()}
    else:
        curves = {_label(facts, runs, "test"): facts.curve(f"test_{score}") for facts in runs}
    curves = {name: curve for name, curve in curves.items() if len(curve[0])}
    if not curves:
        return None
    figure, axes = new_axes()
    _draw(axes, curves, {name: f"{name}  {values[-1]:.1%}" for name, (_, values) in curves.items()})
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    lowest = min(values.min() for _, values in curves.values())
    # Curves spend most epochs near the top, so the axis begins just below the lowest value.
    axes.set_ylim(max(0.0, lowest - 0.05), 1.0 if lowest < 0.9 else 1.002)
    axes.set_ylabel("labels predicted correctly" if score == "accuracy" else SCORES[score])
    title = SCORES[score] if len(runs) == 1 else f"test {SCORES[score]}"
    return Picture("accuracy", title[0].upper() + title[1:], figure)


def seconds_picture(runs: Sequence[RunFacts]) -> Picture:
    """Draw the time of every epoch on its slowest rank."""
    taken = {_label(facts, runs, "slowest rank"): facts.curve("seconds") for facts in runs}
    _, unit = in_seconds(np.concatenate([np.atleast_1d(np.median(curve[1])) for curve in taken.values()]))
    factor = 1e3 if unit == "ms" else 1.0
    curves = {name: (epochs, seconds * factor) for name, (epochs, seconds) in taken.items()}
    figure, axes = new_axes()
    _draw(axes, curves, {name: f"{name}  {np.median(values):.3g} {unit}" for name, (_, values) in curves.items()})
    # A single slow epoch would flatten all others.
    top = max(float(np.quantile(values, 0.98)) for _, values in curves.values())
    highest = max(float(values.max()) for _, values in curves.values())
    # `or 1.0`, because Matplotlib warns about an axis from 0 to 0.
    axes.set_ylim(0, min(1.4 * top, 1.06 * highest) or 1.0)
    axes.set_ylabel(f"{unit} per epoch")
    cut = "; slower epochs are cut off" if highest > 1.4 * top else ""
    return Picture("seconds", "Time per epoch", figure, f"Slowest rank of each epoch; labels show the median{cut}.")


def _label(facts: RunFacts, runs: Sequence[RunFacts], alone: str) -> str:
    """Return the run's name, with its dataset if the runs have several; ``alone`` if there is only one run."""
    if len(runs) == 1:
        return alone
    return facts.run.name if len({each.dataset.name for each in runs}) == 1 else facts.name


def _thinned(epochs: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Reduce a curve to few enough points by medians over groups of epochs; a last, smaller group stays as it is."""
    group = -(-len(epochs) // _MOST_POINTS)
    whole = len(epochs) // group * group
    # A mean would follow a single slow epoch.
    middles = [np.median(each[:whole].reshape(-1, group), axis=1) for each in (epochs, values)]
    return np.append(middles[0], epochs[whole:]), np.append(middles[1], values[whole:])


def _draw(axes: Axes, curves: dict[str, Curve], labels: dict[str, str]) -> None:
    for number, (name, (epochs, values)) in enumerate(curves.items()):
        axes.plot(
            *_thinned(epochs, values),
            color=color(SERIES[number % len(SERIES)]),
            # Colors repeat after the last one, so dashes distinguish the second round.
            linestyle="-" if number < len(SERIES) else "--",
            # A single epoch would be invisible without a marker.
            marker="o" if len(epochs) <= _MARKED_POINTS else None,
            markersize=3.5,
            label=labels[name],
        )
    shown = {int(epoch) for epochs, _ in curves.values() for epoch in epochs}
    if len(shown) == 1:
        (only,) = shown
        axes.set_xlim(only - 1, only + 1)
    axes.margins(x=0.02)
    axes.set_xlabel("epoch")
    whole_numbers(axes)
    draw_grid(axes)
    draw_legend(axes)
