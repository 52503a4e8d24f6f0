"""Tables and headline figures of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.storage.runs.predictions import SMOOTHED
from gnnloom.workflows.formatting import baseline_rows, filtered_figures, noted, readable_bytes, readable_seconds
from gnnloom.workflows.report.facts import SPLITS, RunFacts, scored_epoch, shard_nonzeros
from gnnloom.workflows.report.figures import best_epoch, random_rows, sent_bytes, total_seconds, written
from gnnloom.workflows.report.page import card, table

#: Fields of a configuration that are names and paths, and do not affect the result.
LOCATIONS = frozenset({"catalog", "dataset", "run", "restart", "shards", "log"})
#: Stands for unknown values.
NONE = "-"
#: Facts of a session, and their labels.
_SESSION_FACTS: Mapping[str, str] = {
    "started": "started (UTC)",
    "seconds": "time",
    "state": "state",
    "host": "host of rank 0",
    "platform": "system",
    "version": "gnnloom",
    "python": "Python",
    "torch": "torch",
}


def headline(facts: RunFacts) -> list[tuple[str, str]]:
    """Return the most important figures; always ten, which fill two rows."""
    best, score = best_epoch(facts), facts.score.label
    total, measured, kept = total_seconds(facts), _named(facts, facts.measured_epoch), facts.checkpoint_epoch
    grid, peaks = facts.result.get("grid") or [], facts.result.get("peak_memory")
    return [
        (f"test {score}{measured}", _score(facts, facts.reached(f"test_{facts.score.name}"))),
        (f"validation {score}{measured}", _score(facts, facts.reached(f"val_{facts.score.name}"))),
        (
            f"best validation {score}{f', epoch {best.epoch:,}' if best else ''}",
            _score(facts, best.validation if best else None),
        ),
        (f"training loss{_named(facts, kept)}", f"{facts.metrics[kept - 1]['loss']:.4f}"),
        ("epochs", f"{len(facts.metrics):,}"),
        ("median time per epoch", readable_seconds(facts.epoch_seconds)),
        ("total time", NONE if total is None else readable_seconds(total)),
        (
            f"ranks, as a grid of {'x'.join(map(str, grid))}" if len(grid) > 1 else "ranks",
            str(facts.config.get("ranks")),
        ),
        ("bytes sent per epoch", readable_bytes(sent_bytes(facts))),
        ("peak memory per rank", readable_bytes(max(peaks)) if peaks else NONE),
    ]


def _named(facts: RunFacts, epoch: int | None) -> str:
    """Name an epoch that is not the last one."""
    return "" if epoch in {None, len(facts.metrics)} else f", epoch {epoch:,}"


def _score(facts: RunFacts, value: float | None) -> str:
    return NONE if value is None else written(facts.score, value)


def configuration_table(facts: RunFacts) -> str:
    """Build a table of the training configuration, and of the method of evaluation if there are several."""
    rows = [(name.replace("_", " "), plain(value)) for name, value in facts.config.items() if name not in LOCATIONS]
    if "inference" in facts.result:
        # For models with several methods of evaluation.
        exact = "exact" if facts.result.get("inference_exact") else "not exact"
        rows.append(("inference", f"{facts.result['inference']}, {exact}"))
    return table(("setting", "value"), rows)


def plain(value: Any) -> str:
    """Format the value of a setting."""
    if value is None:
        return NONE
    if isinstance(value, list):
        return ", ".join(map(str, value)) or NONE
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def traffic_table(facts: RunFacts) -> str | None:
    """Build a table of bytes and messages in the last epoch by kind; None if nothing was sent."""
    num_bytes, messages = (facts.metrics[-1].get(name, {}) for name in ("bytes", "messages"))
    if not num_bytes:
        return None
    kinds = sorted(num_bytes, key=lambda kind: -num_bytes[kind])
    rows = [(kind, readable_bytes(num_bytes[kind]), f"{messages.get(kind, 0):,}") for kind in kinds]
    total = ("all", readable_bytes(sum(num_bytes.values())), f"{sum(messages.values()):,}")
    return table(("kind", "bytes", "messages"), [*rows, total])


def quality_table(facts: RunFacts) -> str | None:
    """Build a table of the quality of a row partition, next to the quality of random parts; None for grid shards."""
    quality = facts.quality
    if not quality:
        return None
    total, by_chance = quality["km1"], random_rows(facts)
    rows = [
        ("method", str(quality["method"])),
        ("parts", f"{quality['parts']:,}"),
        ("rows sent per layer and direction (km1)", f"{total:,}"),
    ]
    if by_chance:
        rows += [
            ("rows that a random partition would send", f"{by_chance:,.0f}"),
            ("rows sent, relative to a random partition", f"{total / by_chance:.1%}"),
        ]
    rows += [
        ("rows sent per part, mean and maximum", f"{quality['volume_avg']:,.1f}, {quality['volume_max']:,}"),
        ("receivers per part, mean and maximum", f"{quality['messages_avg']:,.1f}, {quality['messages_max']:,}"),
        ("nonzeros per part, mean and maximum", f"{quality['load_avg']:,.0f}, {quality['load_max']:,}"),
        ("imbalance", f"{quality['imbalance']:.2%}"),
    ]
    return table(("figure", "value"), rows)


def rank_table(facts: RunFacts) -> str | None:
    """Build a table of the figures of a single rank, whose picture would have only one bar; None for several ranks."""
    peaks, read = facts.result.get("peak_memory"), facts.result.get("bytes_read")
    if not peaks or not read or len(peaks) > 1:
        return None
    rows = [("peak memory", readable_bytes(peaks[0])), ("bytes read, compressed", readable_bytes(read[0]))]
    if facts.shards is not None:
        rows.insert(0, ("nonzeros", f"{int(shard_nonzeros(facts.shards).sum()):,}"))
    return table(("figure", "value"), rows)


def sessions_table(facts: RunFacts) -> str | None:
    """Build a table of the times and machines of the run, a column per session; None if not recorded."""
    if not facts.sessions:
        return None
    columns = ("", *(f"session {number}" for number in range(1, len(facts.sessions) + 1)))
    rows = [(text, *(_fact(session, name) for session in facts.sessions)) for name, text in _SESSION_FACTS.items()]
    return table(columns if len(facts.sessions) > 1 else ("fact", "value"), rows)


def _fact(session: Mapping[str, Any], name: str) -> str:
    value = session.get(name)
    if name == "seconds" and value is not None:
        return readable_seconds(value)
    if name == "state" and value is None:
        return "running, or killed"
    return _date(value) if name == "started" else plain(value)


def _date(value: Any) -> str:
    """Write a date for people."""
    return str(value or NONE).replace("T", " ").removesuffix("Z")


def stages_table(facts: RunFacts) -> str | None:
    """Build a table of the time, memory and bytes of every stage; None if all artifacts were removed."""
    rows = []
    for artifact in facts.artifacts:
        measured = artifact.measured
        seconds, read, written = (
            sum(measured.get(f"task_{what}", {}).values()) for what in ("seconds", "bytes_read", "bytes_written")
        )
        rows.append(
            (
                f"{artifact.kind} {artifact.key}",
                readable_seconds(seconds),
                readable_bytes(measured["peak_memory"]),
                readable_bytes(read),
                readable_bytes(written),
                readable_bytes(artifact.stored_bytes()),
                _date(measured.get("finished")),
            )
        )
    columns = ("artifact", "task time", "peak memory", "read", "written", "stored", "finished (UTC)")
    return table(columns, rows) if rows else None


def figures_card(facts: RunFacts) -> str | None:
    """Build a table of all figures of a run on pairs, on every split; None for other runs, or without figures."""
    if not facts.task.on_pairs:
        return None
    figures = facts.task.figures
    measured = {
        name: facts.reached(name) for each in figures for name in (f"{prefix}_{each.name}" for prefix in SPLITS)
    }
    splits = [prefix for prefix in SPLITS if any(measured[f"{prefix}_{each.name}"] is not None for each in figures)]
    rows = []
    for figure in sorted(figures, key=lambda each: each is not facts.score):
        values = {name: measured[name] for name in (f"{prefix}_{figure.name}" for prefix in splits)}
        if any(value is not None for value in values.values()):
            cells = [
                NONE if value is None else written(figure, value) + noted(facts.result, name)
                for name, value in values.items()
            ]
            rows.append((figure.label, *cells))
    # Ranked among all vertices, so the figures do not depend on negatives.
    for label, value in filtered_figures(facts.result).items():
        shown = [f"{value:.2%}" if prefix == "test" else NONE for prefix in splits]
        rows.append((f"{label} among all vertices, filtered", *shown))
    content = table(("figure", *(SPLITS[prefix] for prefix in splits)), rows)
    return card("Figures", content, kind="table tall") if rows else None


def classes_card(facts: RunFacts) -> str | None:
    """Build a table of precision, recall and F1 of every class; None if the run did not record them."""
    classes = facts.result.get("per_class")
    if not classes:
        return None
    rows = [
        (
            facts.class_label(each["class"]),
            *(f"{each[name]:.2%}" for name in ("precision", "recall", "f1")),
            f"{each['support']:,}",
        )
        for each in classes
    ]
    content = table(("class", "precision", "recall", "F1", "labels"), rows)
    return card(f"Scores by class{scored_epoch(facts)}", content, kind="table tall")


def smoothing_card(facts: RunFacts) -> str | None:
    """Build a table of the scores of smoothed and of the model's own predictions; None if there are none."""
    found, rows = facts.smoothing, []
    for split, label in SPLITS.items():
        both = [found.get(f"{prefix}{split}_{facts.score.name}") for prefix in ("", SMOOTHED)]
        if None not in both:
            rows.append((label, *(_score(facts, value) for value in both)))
    if not rows:
        return None
    title = f"Predictions smoothed over the edges ({found.get('smooth')}), epoch {found.get('epoch')}"
    return card(title, table(("split", f"{facts.score.label} of the model", "smoothed"), rows), kind="table")


def baselines_card(facts: RunFacts) -> str | None:
    """Build a table of the test figures next to the figures of scores that need no training; None if there are none."""
    rows = baseline_rows(facts.result)
    if not rows:
        return None
    return card(f"Scores that need no training{scored_epoch(facts)}", table(rows[0], rows[1:]), kind="table")
