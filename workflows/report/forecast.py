"""The planner's forecast for a run, next to measured figures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from gnnloom.workflows.formatting import readable
from gnnloom.workflows.report.facts import RunFacts
from gnnloom.workflows.report.page import card, table

#: Local work in a forecast, by the names of a profiled epoch.
_COMPUTING = {"spmm": "products with the adjacency", "gemm": "products with weights", "passes": "everything else"}
#: A profiled epoch and a forecast use different names for the rest of the time.
_MEASURED_NAMES = {"passes": "other"}


def forecast_card(facts: RunFacts) -> str | None:
    """Compare the forecast that a run keeps with its measured figures; None if it has none."""
    forecast = facts.run.forecast()
    if not forecast:
        return None
    peak = max(facts.result.get("peak_memory", [0])) or None
    rows = [_row("peak memory", forecast["peak_memory"], peak)]
    if "epoch_seconds" in forecast:
        measured = statistics.median(line["seconds"] for line in facts.metrics)
        total = _row("epoch seconds", forecast["epoch_seconds"], measured)
        sent = [
            _row(f"{what} sent", forecast[f"{what}_sent"], sum(facts.metrics[-1].get(what, {}).values()))
            for what in ("bytes", "messages")
        ]
        rows = [total, *_split_seconds(forecast, facts), *sent, *rows]
    return card("An epoch", table(("", "predicted", "measured"), rows), note=_note(forecast, facts), kind="table")


def _split_seconds(forecast: Mapping[str, Any], facts: RunFacts) -> list[tuple[str, str, str]]:
    """Shares of an epoch's time, on average over the ranks; measured in profiled runs only."""
    predicted = {**forecast["seconds_by_kind"], "waiting": forecast.get("waiting_seconds", 0.0)}
    ranks = facts.rank_seconds
    names = dict.fromkeys([*predicted, *(name for rank in ranks for name in rank if name != "other")])
    rows = []
    for name in names:
        known = _MEASURED_NAMES.get(name, name)
        measured = statistics.fmean(rank.get(known, 0.0) for rank in ranks) if ranks else None
        if predicted.get(name) or measured:
            rows.append(_row(f"{_COMPUTING.get(name, name)}, seconds", predicted.get(name, 0.0), measured))
    hidden = forecast.get("hidden_seconds", 0.0)
    return [*rows, _row("minus seconds hidden by products", hidden, None)] if hidden else rows


def _row(name: str, predicted: float, measured: float | None) -> tuple[str, str, str]:
    unit = name.replace(" ", "_")
    return name.removesuffix(", seconds"), readable(unit, predicted), readable(unit, measured)


def _note(forecast: Mapping[str, Any], facts: RunFacts) -> str:
    notes = ["Predicted when the run last started or continued."]
    if "epoch_seconds" not in forecast:
        return " ".join([*notes, "Epochs depend on the batches that are drawn, so only the memory is predicted."])
    if len(facts.sessions) > 1:
        notes.append("Measured seconds are from the epochs of all sessions.")
    if forecast["profile"] == "generic":
        notes.append(
            "No profile `local` was stored at that time, so the times are from another machine. `gnnloom"
            " calibrate` measures this machine."
        )
    if forecast["clock"] != "wall":
        notes.append("Predicted times are processor seconds; measured ones are wall time.")
    if not facts.rank_seconds:
        notes.append("Train with --profile to see where the measured time goes.")
    if forecast.get("estimated"):
        notes.append(f"Bytes and messages are estimates: {forecast['estimated']}.")
    return " ".join(notes)
