"""Tables and headline figures of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnnloom.workflows.formatting import readable_bytes, readable_seconds
from gnnloom.workflows.report.facts import SCORES, SPLITS, RunFacts
from gnnloom.workflows.report.page import table

#: Fields of a configuration that name places and do not affect the result.
_LOCATIONS = frozenset({"catalog", "dataset", "run", "resume", "shards"})
_NONE = "-"


def headline(facts: RunFacts) -> list[tuple[str, str]]:
    """Return the most important figures."""
    last = last_values(facts)
    named = {
        f"test {SCORES[facts.score]}": _share(last[f"test_{facts.score}"]),
        "training loss": f"{last['loss']:.4f}",
        "median time per epoch": readable_seconds(last["epoch_seconds"]),
        "epochs": f"{len(facts.metrics):,}",
        _ranks(facts): str(facts.config.get("ranks")),
        "bytes sent per epoch": readable_bytes(sum(facts.metrics[-1].get("bytes", {}).values())),
        "peak memory": _most(facts.result.get("peak_memory")),
    }
    return list(named.items())


def last_values(facts: RunFacts) -> dict[str, Any]:
    """Return the last loss, the last score of every split (None if not measured), and the median time per epoch."""
    values: dict[str, Any] = {"loss": facts.metrics[-1]["loss"]}
    for name in (f"{split}_{score}" for split in SPLITS for score in SCORES):
        _, curve = facts.curve(name)
        values[name] = float(curve[-1]) if len(curve) else None
    _, seconds = facts.curve("seconds")
    return values | {"epoch_seconds": float(sorted(seconds)[len(seconds) // 2])}


def _ranks(facts: RunFacts) -> str:
    grid = facts.result.get("grid") or []
    return f"ranks, as a grid of {'x'.join(map(str, grid))}" if len(grid) > 1 else "ranks"


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2%}"


def _most(values: Sequence[int] | None) -> str:
    return readable_bytes(max(values)) if values else _NONE


def configuration_table(facts: RunFacts) -> str:
    """Build a table of the training's configuration."""
    rows = [(name.replace("_", " "), _plain(value)) for name, value in facts.config.items() if name not in _LOCATIONS]
    return table(("setting", "value"), rows)


def _plain(value: Any) -> str:
    if value is None:
        return _NONE
    if isinstance(value, list):
        return ", ".join(map(str, value)) or _NONE
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
    """Build a table of the quality of a row partition; None for grid shards."""
    quality = facts.shards.facts.get("quality") if facts.shards is not None else None
    if not quality:
        return None
    rows = [
        ("method", str(quality["method"])),
        ("parts", f"{quality['parts']:,}"),
        ("rows sent per layer and direction (km1)", f"{quality['km1']:,}"),
        ("rows sent per part, mean and maximum", f"{quality['volume_avg']:,.1f}, {quality['volume_max']:,}"),
        ("receivers per part, mean and maximum", f"{quality['messages_avg']:,.1f}, {quality['messages_max']:,}"),
        ("nonzeros per part, mean and maximum", f"{quality['load_avg']:,.0f}, {quality['load_max']:,}"),
        ("imbalance", f"{quality['imbalance']:.2%}"),
    ]
    return table(("figure", "value"), rows)


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
                str(measured.get("finished", _NONE)).replace("T", " ").removesuffix("Z"),
            )
        )
    columns = ("artifact", "task time", "peak memory", "read", "written", "stored", "finished (UTC)")
    return table(columns, rows) if rows else None


def comparison_rows(runs: Sequence[RunFacts]) -> list[tuple[str, ...]]:
    """Return rows with the results of several runs and their ratios to the first run."""
    rows = []
    for name, values, write in _results(runs):
        first = values[0]
        cells = [_NONE if value is None else write(value) for value in values]
        # The first run has no ratio to itself, and a ratio to 0 means nothing.
        ratios = [
            f"{cell}  (x {value / first:.2f})" if number and first and value is not None else cell
            for number, (cell, value) in enumerate(zip(cells, values, strict=True))
        ]
        rows.append((name, *ratios))
    return rows


def _results(runs: Sequence[RunFacts]) -> list[tuple[str, list[Any], Any]]:
    """Return name, values of all runs, and formatter of each figure in a comparison."""
    last = [last_values(facts) for facts in runs]
    sent = [sum(facts.metrics[-1].get("bytes", {}).values()) for facts in runs]
    messages = [sum(facts.metrics[-1].get("messages", {}).values()) for facts in runs]
    peak = [max(each) if (each := facts.result.get("peak_memory")) else None for facts in runs]
    read = [sum(each) if (each := facts.result.get("bytes_read")) else None for facts in runs]
    # Runs may be judged by different scores, and each of these gets its rows.
    scores = [
        (f"{text} {SCORES[score]}", [values[f"{split}_{score}"] for values in last], _share)
        for score in dict.fromkeys(facts.score for facts in runs)
        for split, text in SPLITS.items()
    ]
    return [
        *scores,
        ("training loss", [values["loss"] for values in last], lambda value: f"{value:.4f}"),
        ("median time per epoch", [values["epoch_seconds"] for values in last], readable_seconds),
        ("epochs", [len(facts.metrics) for facts in runs], lambda value: f"{value:,}"),
        ("bytes sent per epoch", sent, readable_bytes),
        ("messages per epoch", messages, lambda value: f"{value:,}"),
        ("peak memory per rank", peak, readable_bytes),
        ("bytes read by all ranks", read, readable_bytes),
    ]


def difference_rows(runs: Sequence[RunFacts]) -> list[tuple[str, ...]]:
    """Return rows with the settings in which runs differ."""
    names = dict.fromkeys(name for facts in runs for name in facts.config if name not in _LOCATIONS)
    values = {name: [_plain(facts.config.get(name)) for facts in runs] for name in names}
    different = [(name.replace("_", " "), *each) for name, each in values.items() if len(set(each)) > 1]
    if len({facts.dataset.name for facts in runs}) > 1:
        different.insert(0, ("dataset", *(facts.dataset.name for facts in runs)))
    if len({facts.shards.key if facts.shards else None for facts in runs}) > 1:
        different.append(("shards", *(facts.shards.key if facts.shards else _NONE for facts in runs)))
    return different
