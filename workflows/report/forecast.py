"""The planner's forecast for a run, next to what was measured."""

from __future__ import annotations

import statistics

from gnnloom.storage.errors import GnnloomError
from gnnloom.workflows.formatting import readable
from gnnloom.workflows.report.facts import RunFacts
from gnnloom.workflows.report.page import card, table


def forecast_card(facts: RunFacts) -> str | None:
    """Compare the forecast of a run with its measured figures; None without a profile of the machine."""
    from gnnloom.trainer.planner.profile import LOCAL, profile_path

    # Checked first: importing the planner takes seconds.
    if not profile_path(facts.dataset.path.parent, LOCAL).exists():
        return None
    try:
        rows = _rows(facts)
    except GnnloomError:
        return None  # a model, mode or algorithm that the planner does not know, or shards that are gone
    if not rows:
        return None
    note = "Predicted when this report was written, with the profile of the machine that `gnnloom calibrate` measured."
    return card("An epoch", table(("", "predicted", "measured"), rows), note=note, kind="table")


def _rows(facts: RunFacts) -> list[tuple[str, str, str]]:
    from gnnloom.trainer.config.train_config import TrainConfig
    from gnnloom.trainer.planner.candidates import make_plans
    from gnnloom.trainer.planner.profile import LOCAL, open_profile
    from gnnloom.trainer.planner.stored import situation_of

    config = TrainConfig.of_run(facts.run)
    profile = open_profile(facts.dataset.path.parent, LOCAL)
    axes = config.chosen_algorithm.settled_grid(config.grid, config.ranks)
    situation = situation_of(facts.dataset, facts.run.inputs().get("graph"))
    plans = make_plans(config, situation, profile, algorithms=[config.algorithm])
    # Of several partitions, the one that the run's shards follow.
    partition = facts.shards.inputs.get("partition", "") if facts.shards is not None else ""
    plan = next((p for p in plans if p.grid == list(axes.values()) and p.partition_key in {"", partition}), None)
    if plan is None:
        return []
    last = facts.metrics[-1]
    figures: list[tuple[str, float, float | None]] = [
        ("bytes_sent", round(sum(plan.volume.bytes.values())), sum(last["bytes"].values())),
        ("messages_sent", round(sum(plan.volume.messages.values())), sum(last["messages"].values())),
        ("peak_memory", plan.peak_memory, max(facts.result.get("peak_memory", [0])) or None),
    ]
    if profile.clock == "wall":
        measured = statistics.median(line["seconds"] for line in facts.metrics)
        figures.insert(0, ("epoch_seconds", plan.cost.total, measured))
    return [(name.replace("_", " "), readable(name, known), readable(name, found)) for name, known, found in figures]
