"""The table of what trains: every mode with every model, kind of task and place of the features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from gnnloom.storage.errors import InputError
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.modes.registry import MODES
from gnnloom.trainer.tasks.registry import TASKS

#: Options that say where the features come from, by what the table calls them.
FEATURES: dict[str, dict[str, Any]] = {
    "stored": {},
    "`--inputs disk`": {"inputs": "disk"},
    "`--samples`": {"samples": "KEY"},
    "`--embed`": {"embed": 8},
}
#: Other options that only some algorithms have.
_OTHERS: dict[str, dict[str, Any]] = {"`--adjacency disk`": {"adjacency": "disk"}, "`--recompute`": {"recompute": True}}


@dataclass(frozen=True)
class Combination:
    """A mode, a model, a task and a place of the features.

    Attributes:
        refused: why it does not train; empty if it does.
    """

    mode: str
    model: str
    task: str
    features: str
    refused: str


def combinations() -> Iterator[Combination]:
    """Every combination of gnnloom's own modes, models and tasks; a configuration says whether it trains."""
    for mode, model, task, features in product(MODES, MODELS, TASKS, FEATURES):
        options = {"mode": mode, "model": model, "task": task, **FEATURES[features]}
        yield Combination(mode, model, task, features, _refusal(options))


def _refusal(options: dict[str, Any]) -> str:
    """Why a training with these options is refused; empty if it is not."""
    try:
        TrainConfig.of(catalog="catalog", dataset="web", **options)
    except InputError as error:
        return str(error)
    return ""


def table(of: str) -> str:
    """Return a table: of ``algorithms``, or of the tasks on ``vertices`` or ``pairs``."""
    return _algorithms() if of == "algorithms" else _tasks(of)


def _algorithms() -> str:
    """The models that each algorithm trains on the whole graph, and what else it can do."""
    lines = ["| algorithm | models of mode `full` | other modes | with |", "| --- | --- | --- | --- |"]
    for name in ALGORITHMS:
        models = [f"`{model}`" for model in MODELS if not _refusal({"algorithm": name, "model": model})]
        modes = [
            f"`{mode}`"
            for mode in MODES
            if mode != "full"
            and any(not _refusal({"algorithm": name, "model": model, "mode": mode}) for model in MODELS)
        ]
        others = [text for text, options in _OTHERS.items() if not _refusal({"algorithm": name, **options})]
        lines.append(f"| `{name}` | {', '.join(models)} | {', '.join(modes)} | {', '.join(others)} |")
    return "\n".join(lines)


def _tasks(of: str) -> str:
    """The table of the tasks on ``vertices`` or ``pairs``: a row per mode and model, a column per place."""
    tasks = [name for name, task in TASKS.items() if task.on_pairs == (of == "pairs")]
    found = {(each.mode, each.model, each.task, each.features): not each.refused for each in combinations()}
    lines = ["| mode | model | " + " | ".join(FEATURES) + " |", "| --- " * (2 + len(FEATURES)) + "|"]
    for mode in MODES:
        alike: dict[tuple[bool, ...], list[str]] = {}
        for model in MODELS:
            trains = tuple(all(found[mode, model, task, each] for task in tasks) for each in FEATURES)
            alike.setdefault(trains, []).append(f"`{model}`")
        for trains, models in alike.items():
            if any(trains):
                cells = ["yes" if each else "" for each in trains]
                lines.append(f"| `{mode}` | {', '.join(models)} | {' | '.join(cells)} |")
    return "\n".join(lines)
