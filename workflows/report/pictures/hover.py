"""Shows values in the page while the pointer is over a part of a picture, with CSS only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from gnnloom.workflows.formatting import in_html

#: Maximum number of spots of a picture, so that spots are wider than the pointer's tip and the page stays small.
MOST_SPOTS = 120
#: Distance of the box from the spot, of the text from the edge of the box, and between lines, in points.
_GAP, _PAD, _LINE = 4.0, 4.0, 10.5
#: Upper bound of the average width of a letter: the fonts of browsers differ.
_LETTER = 4.8


@dataclass(frozen=True)
class Spot:
    """A rectangle in the coordinates of the data, and the lines of text that it shows.

    Attributes:
        rows: bottom and top; None for the full height of the axes.
    """

    columns: tuple[float, float]
    rows: tuple[float, float] | None
    lines: tuple[str, ...]


def chosen(count: int) -> NDArray[np.int64]:
    """Return evenly spaced positions out of ``count``, at most :data:`MOST_SPOTS`, with the first and the last."""
    return np.unique(np.linspace(0, max(0, count - 1), min(count, MOST_SPOTS)).round().astype(np.int64))


def column_spots(positions: NDArray[np.float64], lines: Sequence[tuple[str, ...]]) -> list[Spot]:
    """Return spots of the full height that meet halfway between ascending positions."""
    if len(positions) == 0:
        return []
    middles = (positions[1:] + positions[:-1]) / 2
    half = float(positions[1] - positions[0]) / 2 if len(positions) > 1 else 0.5
    edges = np.concatenate([[positions[0] - half], middles, [positions[-1] + half]])
    return [Spot(ends, None, text) for ends, text in zip(pairwise(edges.tolist()), lines, strict=True)]


def spots_svg(axes: Axes, spots: Iterable[Spot]) -> str:
    """Return SVG elements for spots of a figure that has been laid out."""
    return "".join(_spot_svg(axes, spot) for spot in spots)


def _spot_svg(axes: Axes, spot: Spot) -> str:
    scale, frame = 72 / axes.figure.dpi, axes.get_window_extent()
    height = axes.figure.bbox.height
    bottom, top = spot.rows or axes.get_ylim()
    corners = axes.transData.transform([(spot.columns[0], bottom), (spot.columns[1], top)])
    (left, right), (low, high) = np.sort(corners, axis=0).T
    left, right = np.clip([left, right], frame.x0, frame.x1) * scale
    # SVG counts from the top.
    upper, lower = (height - np.array([high, low])) * scale
    area = f"x='{left:.1f}' y='{upper:.1f}' width='{right - left:.1f}' height='{lower - upper:.1f}'"
    top = max(upper, (height - frame.y1) * scale)
    return f"<g class='spot'><rect {area}/>{_tip_svg(spot.lines, left, right, top, axes)}</g>"


def _tip_svg(lines: Sequence[str], left: float, right: float, top: float, axes: Axes) -> str:
    """Return a box with text next to a spot, on the side with more room."""
    whole = axes.figure.bbox.width * 72 / axes.figure.dpi
    width, height = _LETTER * max(map(len, lines)) + 2 * _PAD, _LINE * len(lines) + 2 * _PAD
    wanted = right + _GAP if left + right < whole else left - _GAP - width
    x = min(max(0.0, wanted), whole - width)
    spans = "".join(
        f"<tspan x='{x + _PAD:.1f}' y='{top + _PAD + (number + 0.8) * _LINE:.1f}'>{in_html(line)}</tspan>"
        for number, line in enumerate(lines)
    )
    box = f"<rect x='{x:.1f}' y='{top:.1f}' width='{width:.1f}' height='{height:.1f}' rx='2'/>"
    return f"<g class='tip'>{box}<text>{spans}</text></g>"
