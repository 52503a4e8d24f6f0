"""The style of reports: colors for light and dark mode, sizes, fonts, and pictures as SVG and PNG.

Pictures are drawn in the light colors. In the page, each color is a CSS variable, so one picture serves both modes.
Data colors come from Okabe and Ito ("Color Universal Design", 2008), which color-blind readers can distinguish,
slightly darker on white and lighter on black.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from gnnloom.storage.wording import printable
from gnnloom.workflows.formatting import in_html
from gnnloom.workflows.report.pictures.hover import Spot, spots_svg

#: Colors by name: for light mode, and for dark mode. The light ones are distinct and in lower case, as Matplotlib
#: writes them, because CSS variables replace them by their text.
COLORS: Mapping[str, tuple[str, str]] = {
    "ink": ("#1c2430", "#e8ebf0"),
    "muted": ("#5a6575", "#9ba6b5"),
    "line": ("#dbe0e8", "#343c48"),
    "card": ("#fefefe", "#181d24"),
    "page": ("#f4f6f9", "#0f1318"),
    "blue": ("#0072b2", "#4aa8e0"),
    "orange": ("#d97f00", "#f2ab45"),
    "green": ("#008a6a", "#35c09c"),
    "purple": ("#a8568a", "#db95c1"),
    "red": ("#c74e18", "#f28a61"),
    "sky": ("#5fb3e0", "#8fd0f5"),
    "navy": ("#0a4f7d", "#2c7db3"),
    "gray": ("#9aa3ae", "#6b7583"),
}
#: Colors of lines and bars, in order.
SERIES = ("blue", "orange", "green", "purple", "red", "sky", "gray")
#: Widths of half a page and of a whole one, and a usual height, in inches. A point is 1.4 pixels on the page.
HALF, WHOLE, HEIGHT = 5.4, 11.2, 3.0
#: Height of a matrix, which is about as wide as high.
HEAT_HEIGHT = 4.2

#: Any, because Matplotlib's types list the names of all settings, and the list changes with every version.
_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    # Text stays text, in the font of the page, rather than outlines of letters.
    "svg.fonttype": "none",
    # A name with two dollar signs is not a formula.
    "text.parse_math": False,
    # Transparent, so that the card of the page shows through in either mode.
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "hatch.linewidth": 0.6,
}
_PNG_DPI = 200
#: Distances of ticks are one of the steps times a power of ten.
_STEPS = (1, 2, 5, 10)
#: Share of a picture's width that a legend may take; the tick labels of the y axis need the rest.
_LEGEND_SHARE = 0.88


@dataclass(frozen=True)
class Picture:
    """One figure of a report.

    Attributes:
        name: name of its file, without suffix.
        note: text below the figure.
        spots: values to show in the page under the pointer.
        rows: lines of the table behind the picture, if it has no spots: a name, and then values, each with its own
            name and two spaces before it.
    """

    name: str
    title: str
    figure: Figure
    note: str = ""
    spots: Sequence[Spot] = ()
    rows: Sequence[tuple[str, ...]] = ()

    @property
    def values(self) -> Sequence[tuple[str, ...]]:
        """The lines of the table behind the picture; empty for matrices with too many cells."""
        return self.rows or [spot.lines for spot in self.spots]

    @property
    def alternative(self) -> str:
        """The text for readers who do not see the picture: its title, and its first and last values."""
        ends = [self.values[0], self.values[-1]][: len(self.values)] if self.values else []
        return in_html("; ".join([self.title, *(", ".join(line.replace("  ", " ") for line in end) for end in ends)]))

    @property
    def is_wide(self) -> bool:
        return bool(self.figure.get_figwidth() > HALF)

    @property
    def is_matrix(self) -> bool:
        return bool(self.figure.get_figheight() == HEAT_HEIGHT)

    def svg(self) -> str:
        """Render the picture as an SVG element that takes its colors from the page."""
        stream = io.StringIO()
        # Any, because Matplotlib's types leave out these methods.
        canvas: Any = FigureCanvasSVG(self.figure)
        with self._drawing(self.figure.get_dpi()):
            canvas.print_svg(stream, metadata={"Date": None, "Creator": None})
        text = stream.getvalue()
        # Without the XML declaration, which is not allowed inside HTML.
        text = text[text.index("<svg") :]
        width = round(self.figure.get_figwidth() * 72)
        shown = f'role="img" aria-label="{self.alternative}" style="--points:{width}"'
        text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', lambda _: shown, text, count=1)
        for name, (light, _) in COLORS.items():
            text = text.replace(light, f"var(--{name})")
        # After rendering, which decides where everything is.
        spots = spots_svg(self.figure.axes[0], self.spots) if self.spots else ""
        return text.replace("</svg>", f"{spots}</svg>")

    def widen(self) -> None:
        """Make the figure as wide as the page; must be called before the figure is rendered."""
        self.figure.set_figwidth(WHOLE)

    def write_png(self, path: Path) -> None:
        figure, stream = self.figure, io.BytesIO()
        canvas: Any = FigureCanvasAgg(figure)
        with self._drawing(_PNG_DPI):
            figure.set_facecolor("white")
            canvas.print_png(stream)
            figure.set_facecolor("none")
        path.write_bytes(stream.getvalue())

    @contextmanager
    def _drawing(self, dpi: float) -> Iterator[None]:
        """Lay the figure out for its canvas, unless this is already done, and draw it once inside.

        ``savefig`` would draw everything another time, without output.
        """
        figure, before = self.figure, self.figure.get_dpi()
        # The salt makes equal input give equal bytes, and ids of one page's pictures distinct.
        with rc_context({**_SETTINGS, "svg.hashsalt": self.name}), warnings.catch_warnings():
            # A browser has fonts for names with characters that Matplotlib's font lacks.
            warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
            # Text that was added without the settings, such as names from artifacts.
            for text in figure.findobj(Text):
                text.set_parse_math(False)
                text.set_text(printable(text.get_text(), keep="\n"))
            figure.set_dpi(dpi)
            layout = figure.get_layout_engine()
            if layout is not None:
                layout.execute(figure)
            # Keep the layout for the next format: computing it is most of the work.
            figure.set_layout_engine("none")
            # Rendering an SVG sets another layout engine.
            figure.set_dpi(dpi)
            yield
            figure.set_dpi(before)


def color(name: str) -> str:
    """Return a color to draw with."""
    return COLORS[name][0]


def new_axes(width: float = HALF, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """Create an empty figure with one pair of axes; sizes are in inches."""
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06))
        axes = figure.add_subplot()
        axes.tick_params(color=color("line"), labelcolor=color("muted"), length=3)
        for spine in axes.spines.values():
            spine.set_color(color("line"))
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_color(color("muted"))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=_STEPS))
    return figure, axes


def draw_grid(axes: Axes, axis: Literal["x", "y"] = "y") -> None:
    """Draw faint grid lines behind the data."""
    axes.grid(axis=axis, color=color("line"), linewidth=0.6)
    axes.set_axisbelow(True)


def draw_legend(axes: Axes, columns: int = 4) -> None:
    """Draw a legend above the axes, where it covers no data, in at most ``columns`` columns."""
    with rc_context(_SETTINGS):
        for number in range(columns, 0, -1):
            legend = axes.legend(
                loc="lower left",
                bbox_to_anchor=(0, 1.0),
                borderaxespad=0.2,
                ncols=number,
                handlelength=1.2,
                columnspacing=1.4,
                labelcolor=color("ink"),
            )
            # The width of a legend is known only after its layout, hence the attempts.
            if legend.get_window_extent().width <= _LEGEND_SHARE * axes.figure.bbox.width:
                return


def whole_numbers(axes: Axes) -> None:
    """Put ticks of the x axis at whole numbers only."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=_STEPS))


def share_scale(pictures: Sequence[Picture]) -> None:
    """Give bar charts the same y axis if they have the same unit."""
    axes = [picture.figure.axes[0] for picture in pictures]
    if len({each.get_ylabel() for each in axes}) == 1:
        top = max(each.get_ylim()[1] for each in axes)
        for each in axes:
            each.set_ylim(0, top)


def in_bytes(values: ArrayLike) -> tuple[NDArray[np.float64], str]:
    """Scale bytes to a unit in which the largest has at most four digits; return them and the unit's name."""
    return _scaled(values, 1024, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def in_counts(values: ArrayLike) -> tuple[NDArray[np.float64], str]:
    """Scale large counts to thousands, millions or billions; return them and the word for the unit."""
    return _scaled(values, 1000, 20_000, ("", "thousand ", "million ", "billion "))


def in_seconds(values: ArrayLike) -> tuple[NDArray[np.float64], str]:
    """Scale seconds to milliseconds if all are below one; return them and the unit's name."""
    array = np.asarray(values, np.float64)
    return (array * 1e3, "ms") if array.max(initial=0) < 1 else (array, "s")


def _scaled(values: ArrayLike, base: int, most: int, units: Sequence[str]) -> tuple[NDArray[np.float64], str]:
    array, unit = np.asarray(values, np.float64), 0
    while array.max(initial=0) >= most and unit < len(units) - 1:
        array, unit = array / base, unit + 1
    return array, units[unit]
