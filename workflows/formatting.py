"""Formats figures for people: bytes, seconds, counts."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from gnnloom.storage.artifacts.links import BASELINES
from gnnloom.storage.wording import printable

#: Longer times are written in minutes, which are accurate enough.
_TEN_MINUTES = 600
#: Labels of the figures of pairs, in their order.
_PAIR_FIGURES: Final = {
    "auc": "AUC",
    "ap": "average precision",
    "hits_20": "Hits@20",
    "hits_50": "Hits@50",
    "hits_100": "Hits@100",
    "mrr": "MRR",
}


def in_html(text: str) -> str:
    """Escape text from data or files for HTML; control characters appear as Python escapes."""
    return escape(printable(text, keep="\n"))


def readable(name: str, value: Any) -> str:
    """Format a value with the unit that its name implies, such as ``peak_memory`` or ``epoch_seconds``."""
    if value is None:
        return "-"
    # Before the numbers: a bool is an int.
    if isinstance(value, bool | str):
        return str(value)
    if name.startswith(("bytes", "peak_memory")) or name.endswith(("_bytes", "_memory")):
        return readable_bytes(value)
    if name.endswith("seconds"):
        return readable_seconds(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def noted(result: Mapping[str, Any], name: str) -> str:
    """Note of a result on one of its figures, to write after the figure; empty without a note."""
    note = result.get("notes", {}).get(name)
    return f" ({note})" if note else ""


def filtered_figures(result: Mapping[str, Any]) -> dict[str, float]:
    """Figures of test pairs among all vertices by their labels, such as ``Hits@10``; empty without such figures."""
    found = {name: value for name, value in result.get("filtered", {}).items() if value is not None}
    hits = sorted(int(name.removeprefix("hits_")) for name in found if name != "mrr")
    first = {"MRR": found["mrr"]} if "mrr" in found else {}
    return first | {f"Hits@{count}": found[f"hits_{count}"] for count in hits}


def readable_range(low: float, high: float) -> str:
    """Format an estimated count as a range, such as ``about 1.4 to 1.7 M``; an exact count with all digits."""
    if low == high and float(low).is_integer():
        return f"{int(low):,}"
    factor, unit = next(((size, name) for size, name in _UNITS if high >= size), (1.0, ""))
    # Two digits are known.
    shown = list(dict.fromkeys(f"{float(f'{value / factor:.2g}'):g}" for value in (low, high)))
    return f"about {' to '.join(shown)}{unit}"


def readable_estimate(count: float) -> str:
    """Format an estimated count, such as ``about 1.4 M``."""
    return readable_range(count - 0.5, count + 0.5)


#: Units of large counts.
_UNITS = ((1e9, " G"), (1e6, " M"), (1e3, " k"))


def readable_bytes(count: float) -> str:
    """Format bytes in the largest unit that keeps the number at 1 or above."""
    for unit, decimals in (("B", 0), ("KiB", 1), ("MiB", 1), ("GiB", 1)):
        # Compared in its rounded form: 1023.96 would be rounded up to 1024.0.
        if round(abs(count), decimals) < 1024:
            return f"{count:.{decimals}f} {unit}"
        count /= 1024
    return f"{count:.2f} TiB"


def readable_seconds(seconds: float) -> str:
    """Format seconds, as milliseconds below one second, and with minutes and hours from ten minutes on."""
    if round(seconds * 1000) < 1000:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _TEN_MINUTES:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} min"


def baseline_rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Format the test figures of a run next to scores that need no training, as rows after a row of names.

    Returns:
        Rows of equal length; empty if the run has no such scores.
    """
    stored: Mapping[str, Mapping[str, float | None]] = result.get("baselines") or {}
    # Files of results have their entries in alphabetical order.
    baselines = {name: stored[name] for name in BASELINES if name in stored}
    if not baselines:
        return []
    # All rows use the same negatives, so a note applies to the whole column.
    figures = [name for name in _PAIR_FIGURES if any(each.get(name) is not None for each in baselines.values())]
    rows = {"this run": {name: result.get(f"test_{name}") for name in figures}, **baselines}
    return [
        ("test pairs", *(_PAIR_FIGURES[name] + noted(result, f"test_{name}") for name in figures)),
        *((row.replace("_", " "), *(_share(each.get(name)) for name in figures)) for row, each in rows.items()),
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
