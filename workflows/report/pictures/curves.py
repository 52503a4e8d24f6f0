"""Pictures over epochs, for one run or several: loss, scores, and time per epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from gnnloom.trainer.tasks.task import Figure
from gnnloom.workflows.report.facts import SPLITS, RunFacts
from gnnloom.workflows.report.figures import best_epoch, written
from gnnloom.workflows.report.pictures.hover import Spot, chosen, column_spots
from gnnloom.workflows.report.pictures.style import (
    SERIES,
    Picture,
    color,
    draw_grid,
    draw_legend,
    in_seconds,
    new_axes,
    whole_numbers,
)

#: Maximum number of points of a line; longer runs are drawn as medians. More points would be closer than the line is
#: wide.
_MOST_POINTS = 400
#: Lines with at most this many points have markers.
_MARKED_POINTS = 25
#: A loss that falls by a larger factor is drawn on a logarithmic axis.
_LOGARITHMIC = 30.0
#: Line of each split: curves that coincide stay visible, as each lies on a wider one or has gaps.
_SPLIT_LINES: Mapping[str, Mapping[str, Any]] = {
    "training": {"linewidth": 3.2, "alpha": 0.45},
    "validation": {"linewidth": 2.0},
    "test": {"linewidth": 1.4, "linestyle": (0, (4, 3))},
}
#: Lines of several runs, in order. The numbers of lines and of colors have no common factor, so few runs look alike.
_DASHES = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
#: Axes of scores begin and end at multiples of this, unless the scores are closer together.
_SCORE_STEP = 0.05

#: Epochs, or seconds of training, and the values there.
Curve = tuple[NDArray[Any], NDArray[np.float64]]


def loss_picture(runs: Sequence[RunFacts]) -> Picture:
    """Draw the training loss."""
    curves = {_label(facts, runs, "training loss"): facts.curve("loss") for facts in runs}
    figure, axes = new_axes()
    _draw(axes, curves, {name: f"{name}  {values[-1]:.4f}" for name, (_, values) in curves.items()})
    values = np.concatenate([curve[1] for curve in curves.values()])
    if values.min() > 0 and values.max() > _LOGARITHMIC * values.min():
        _make_logarithmic(axes, values)
    else:
        axes.set_ylim(bottom=min(0.0, float(values.min())))
    axes.set_ylabel("loss")
    return Picture("loss", "Loss", figure, spots=_spots(curves, "{:.4g}".format))


def _make_logarithmic(axes: Axes, values: NDArray[np.float64]) -> None:
    axes.set_yscale("log")
    # Few decades leave room for labels between the powers of ten.
    is_short = float(values.max() / values.min()) < 1e3
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if is_short else (1,), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def accuracy_picture(runs: Sequence[RunFacts], split: str = "test") -> Picture | None:
    """Draw the score on every split, for several runs on one split; None if it was never measured."""
    score = runs[0].score
    if len(runs) == 1:
        curves = {text: runs[0].curve(f"{name}_{score.name}") for name, text in SPLITS.items()}
    else:
        curves = {_label(facts, runs, split): facts.curve(f"{split}_{score.name}") for facts in runs}
    curves = {name: curve for name, curve in curves.items() if len(curve[0])}
    if not curves:
        return None
    figure, axes = new_axes()
    _draw_scores(axes, score, curves)
    title = score.label if len(runs) == 1 else f"{SPLITS[split]} {score.label}"
    note = _mark_best(axes, runs[0]) if len(runs) == 1 else ""
    name = "accuracy" if split == "test" else SPLITS[split]
    return Picture(name, title[0].upper() + title[1:], figure, note, _spots(curves, partial(written, score)))


def progress_picture(runs: Sequence[RunFacts]) -> Picture | None:
    """Draw the test score of several runs over their training time; None if it was never measured.

    An epoch differs between modes of training, so only the time is comparable.
    """
    score = runs[0].score
    curves = {}
    for facts in runs:
        epochs, values = facts.curve(f"test_{score.name}")
        if len(epochs):
            curves[_label(facts, runs, "test")] = np.cumsum(facts.curve("seconds")[1])[epochs - 1], values
    if not curves:
        return None
    figure, axes = new_axes()
    _draw_scores(axes, score, curves, "seconds of training")
    note = "Time of all epochs so far, on the slowest rank and without evaluations. Compare runs of one machine only."
    rows = [
        (name, f"seconds  {seconds[at]:.4g}", f"test {score.label}  {written(score, float(values[at]))}")
        for name, (seconds, values) in curves.items()
        for at in chosen(len(seconds)).tolist()
    ]
    return Picture("progress", f"Test {score.label} over time", figure, note, rows=rows)


def _draw_scores(axes: Axes, score: Figure, curves: dict[str, Curve], over: str = "epoch") -> None:
    """Draw curves of a score, labeled with their last values."""
    labels = {name: f"{name}  {written(score, values[-1], 1)}" for name, (_, values) in curves.items()}
    _draw(axes, curves, labels, over)
    if score.is_share:
        _limit_shares(axes, np.concatenate([values for _, values in curves.values()]))
    elif score.lower:
        axes.set_ylim(bottom=0)
    axes.set_ylabel(score.axis or score.label)


def _limit_shares(axes: Axes, values: NDArray[np.float64]) -> None:
    """Put the limits of an axis of shares around the values, at round figures."""
    lowest, highest = float(values.min()), float(values.max())
    # Curves spend most epochs near the top, so the axis begins just below the lowest value.
    step = _SCORE_STEP if highest - lowest > _SCORE_STEP else _SCORE_STEP / 5
    bottom, top = max(0.0, np.floor(lowest / step - 0.2) * step), min(1.0, np.ceil(highest / step + 0.2) * step)
    # A line along the upper end would be cut to half its width.
    axes.set_ylim(bottom, top + 0.015 * (top - bottom))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if top - bottom > _SCORE_STEP else 1))


def _mark_best(axes: Axes, facts: RunFacts) -> str:
    """Mark the epoch with the best validation score; returns the note about it."""
    best = best_epoch(facts)
    if best is None:
        return ""
    axes.scatter([best.epoch], [best.validation], 30, "none", edgecolors=color("ink"), clip_on=False, zorder=3)
    score = facts.score
    test = "" if best.test is None else f"; test {score.label} then: {written(score, best.test)}"
    value = written(score, best.validation)
    return f"Circle: best validation {score.label}, {value} in epoch {best.epoch:,}{test}."


def seconds_picture(runs: Sequence[RunFacts]) -> Picture:
    """Draw the time of every epoch on its slowest rank, and for a single run the time spent waiting for messages."""
    taken = {_label(facts, runs, "slowest rank"): facts.curve("seconds") for facts in runs}
    exposed = runs[0].curve("exposed_seconds")
    if len(runs) == 1 and len(exposed[0]) and exposed[1].any():
        taken["waiting for messages"] = exposed
    _, unit = in_seconds(np.concatenate([np.atleast_1d(np.median(curve[1])) for curve in taken.values()]))
    factor = 1e3 if unit == "ms" else 1.0
    curves = {name: (epochs, seconds * factor) for name, (epochs, seconds) in taken.items()}
    figure, axes = new_axes()
    _draw(axes, curves, {name: f"{name}  {np.median(values):.3g} {unit}" for name, (_, values) in curves.items()})
    # A single slow epoch would flatten all other epochs.
    top = max(float(np.quantile(values, 0.98)) for _, values in curves.values())
    highest = max(float(values.max()) for _, values in curves.values())
    # `or 1.0`, because Matplotlib warns about an axis from 0 to 0.
    axes.set_ylim(0, min(1.4 * top, 1.06 * highest) or 1.0)
    axes.set_ylabel(f"{unit} per epoch")
    cut = "; slower epochs are cut off" if highest > 1.4 * top else ""
    note = f"Slowest rank of each epoch; labels show the median{cut}."
    return Picture("seconds", "Time per epoch", figure, note, _spots(curves, lambda value: f"{value:.4g} {unit}"))


def _label(facts: RunFacts, runs: Sequence[RunFacts], alone: str) -> str:
    """Return the run's name, with its dataset if the runs have several; ``alone`` if there is only one run."""
    if len(runs) == 1:
        return alone
    return facts.run.name if len({each.dataset.name for each in runs}) == 1 else facts.name


def _thinned(epochs: NDArray[Any], values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Reduce a curve to few enough points by medians over groups of epochs; a last, smaller group stays separate."""
    group = -(-len(epochs) // _MOST_POINTS)
    whole = len(epochs) // group * group
    # A mean would follow a single slow epoch.
    middles = [np.median(each[:whole].reshape(-1, group), axis=1) for each in (epochs, values)]
    return np.append(middles[0], epochs[whole:]), np.append(middles[1], values[whole:])


def _spots(curves: Mapping[str, Curve], write: Callable[[float], str]) -> list[Spot]:
    """Return spots with the values of all curves in an epoch, for evenly chosen epochs."""
    measured = np.unique(np.concatenate([epochs for epochs, _ in curves.values()]))
    epochs = measured[chosen(len(measured))]
    known = {name: dict(zip(each.tolist(), values.tolist(), strict=True)) for name, (each, values) in curves.items()}
    lines = [
        (f"epoch {epoch:,}", *(f"{name}  {write(at[epoch])}" for name, at in known.items() if epoch in at))
        for epoch in epochs.tolist()
    ]
    return column_spots(epochs.astype(np.float64), lines)


def _draw(axes: Axes, curves: dict[str, Curve], labels: dict[str, str], over: str = "epoch") -> None:
    """Draw curves over epochs or seconds."""
    for number, (name, (epochs, values)) in enumerate(curves.items()):
        # Runs with equal curves stay visible, like splits.
        width, dashes = max(1.4, 2.6 - 0.6 * number), _DASHES[number % len(_DASHES)]
        style = _SPLIT_LINES.get(name) or ({"linewidth": width, "linestyle": dashes} if len(curves) > 1 else {})
        axes.plot(
            *_thinned(epochs, values),
            color=color(SERIES[number % len(SERIES)]),
            # A single epoch would be invisible without a marker.
            marker="o" if len(epochs) <= _MARKED_POINTS else None,
            markersize=3.5,
            label=labels[name],
            **style,
        )
    shown = {float(place) for places, _ in curves.values() for place in places}
    if len(shown) == 1:
        (only,) = shown
        # No training run takes less than 0 seconds.
        axes.set_xlim(only - 1 if over == "epoch" else max(0.0, only - 1), only + 1)
    axes.margins(x=0.02)
    axes.set_xlabel(over)
    if over == "epoch":
        whole_numbers(axes)
    draw_grid(axes)
    draw_legend(axes)
