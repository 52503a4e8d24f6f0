"""Tables of a comparison of runs: their results and their differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnnloom.trainer.tasks.task import Figure
from gnnloom.workflows.formatting import readable_bytes, readable_seconds
from gnnloom.workflows.report.facts import SPLITS, RunFacts
from gnnloom.workflows.report.figures import Best, best_epoch, sent_bytes, total_seconds, written
from gnnloom.workflows.report.tables import LOCATIONS, NONE, plain

#: Inputs that affect the results of a run, and their names in the warning.
_DATA = {"graph": "graphs", "vertices": "features, labels or splits"}


@dataclass(frozen=True)
class _Figure:
    """One row of the results: a value for each run, None if unknown.

    Attributes:
        write: formats a value.
        differ: formats the difference between a value and the value of the first run, which is not 0.
    """

    name: str
    values: Sequence[Any]
    write: Callable[[Any], str]
    differ: Callable[[Any, Any], str]


def data_warning(runs: Sequence[RunFacts]) -> str | None:
    """Return a sentence if the runs were not trained on the same data; None if they were."""
    inputs = [facts.run.inputs() for facts in runs]
    different = [text for kind, text in _DATA.items() if len({each.get(kind) for each in inputs}) > 1]
    if not different:
        return None
    what = " and different ".join(different)
    return f"These runs were trained on different {what}: their scores and losses cannot be compared."


def comparison_rows(runs: Sequence[RunFacts]) -> list[tuple[str, ...]]:
    """Return rows with the results of several runs, and the differences from the first run."""
    return [(figure.name, *_cells(figure)) for figure in _results(runs)]


def _cells(figure: _Figure) -> list[str]:
    first, *others = figure.values
    cells = [NONE if first is None else figure.write(first)]
    for value in others:
        if value is None:
            cells.append(NONE)
        # A ratio to 0 means nothing.
        elif first:
            cells.append(f"{figure.write(value)}  ({figure.differ(value, first)})")
        else:
            cells.append(figure.write(value))
    return cells


def _formats(score: Figure) -> tuple[Callable[[Any], str], Callable[[Any, Any], str]]:
    """Return functions that format a score, and its difference from the score of the first run."""
    return partial(written, score), _points if score.is_share else _ratio


def _points(value: float, first: float) -> str:
    """Format the difference of two shares, in percentage points."""
    return f"{100 * (value - first):+.2f} points"


def _ratio(value: float, first: float) -> str:
    return f"x {value / first:.2f}"


def _results(runs: Sequence[RunFacts]) -> list[_Figure]:
    best: Sequence[Best | None] = [best_epoch(facts) for facts in runs]
    # Runs may be judged by different scores, and each score gets its rows.
    scores = [
        _Figure(f"{text} {score.label}", [facts.reached(f"{split}_{score.name}") for facts in runs], *_formats(score))
        for score in dict.fromkeys(facts.score for facts in runs)
        for split, text in SPLITS.items()
    ]
    formats = _formats(runs[0].score)
    # The best epochs of runs that are judged by different scores are not comparable.
    if len({facts.score for facts in runs}) > 1:
        best = [None] * len(runs)
    validation = [each.validation if each else None for each in best]
    test = [each.test if each else None for each in best]
    losses = [facts.metrics[facts.checkpoint_epoch - 1]["loss"] for facts in runs]
    return [
        *scores,
        _Figure("epoch of these scores", [facts.measured_epoch for facts in runs], _count, _difference),
        _Figure("best validation score", validation, *formats),
        _Figure("its epoch", [each.epoch if each else None for each in best], _count, _difference),
        _Figure("test score in that epoch", test, *formats),
        _Figure("training loss", losses, "{:.4f}".format, _ratio),
        *_costs(runs),
    ]


def _costs(runs: Sequence[RunFacts]) -> list[_Figure]:
    messages = [sum(facts.metrics[-1].get("messages", {}).values()) for facts in runs]
    peak = [max(each) if (each := facts.result.get("peak_memory")) else None for facts in runs]
    read = [sum(each) if (each := facts.result.get("bytes_read")) else None for facts in runs]
    return [
        _Figure("median time per epoch", [facts.epoch_seconds for facts in runs], readable_seconds, _ratio),
        _Figure("epochs", [len(facts.metrics) for facts in runs], _count, _difference),
        _Figure("total time", [total_seconds(facts) for facts in runs], readable_seconds, _ratio),
        _Figure("bytes sent per epoch", [sent_bytes(facts) for facts in runs], readable_bytes, _ratio),
        _Figure("messages per epoch", messages, _count, _ratio),
        _Figure("peak memory per rank", peak, readable_bytes, _ratio),
        _Figure("bytes read by all ranks", read, readable_bytes, _ratio),
    ]


def _count(value: int) -> str:
    return f"{value:,}"


def _difference(value: int, first: int) -> str:
    return f"{value - first:+,}"


def difference_rows(runs: Sequence[RunFacts]) -> list[tuple[str, ...]]:
    """Return rows with the settings in which runs differ."""
    names = dict.fromkeys(name for facts in runs for name in facts.config if name not in LOCATIONS)
    values = {name: [plain(facts.config.get(name)) for facts in runs] for name in names}
    different = [(name.replace("_", " "), *each) for name, each in values.items() if len(set(each)) > 1]
    if len({facts.dataset.name for facts in runs}) > 1:
        different.insert(0, ("dataset", *(facts.dataset.name for facts in runs)))
    if len({facts.shards.key if facts.shards else None for facts in runs}) > 1:
        different.append(("shards", *(facts.shards.key if facts.shards else NONE for facts in runs)))
    return different
