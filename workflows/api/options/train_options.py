"""The options of a training run: options of the command, and keywords of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnnloom.storage.option import Group, Option, options_of
from gnnloom.trainer.config.algorithm_config import AUTO
from gnnloom.trainer.config.train_config import MEMORY, TrainConfig, gather_fields, other_options
from gnnloom.workflows.api.options.keywords import check_known, plain_values

#: Fields that are not options: the dataset is an argument, and options of other packages have their own names.
_NOT_OPTIONS = frozenset({"catalog", "dataset", "algorithm_options", "mode_options", "task_options"})
_MEMORY = Option(
    MEMORY,
    int,
    "Memory limit per rank, such as 8G. To stay within the limit, the run keeps features and the adjacency on disk,"
    " recomputes layers and rounds features to bf16, as far as needed; options that are given do not change",
    least=1,
    is_size=True,
    group=Group.EXECUTION,
    is_common=True,
)


def train_options() -> dict[str, Option]:
    """The options of a training run by name; options of other packages' algorithms are last."""
    options = {name: option for name, option in options_of(TrainConfig).items() if name not in _NOT_OPTIONS}
    known = options["algorithm"]
    # Never in a configuration: the planner replaces it by an algorithm before the configuration is made.
    text = f"{known.help}; auto: the fastest planned one"
    options["algorithm"] = replace(known, choices=(*known.choices, AUTO), help=text)
    options[MEMORY] = _MEMORY
    return options | other_options()


def training_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a :class:`TrainConfig` from keyword arguments; a single number stands for a list of one.

    Raises:
        InputError: a training run has no such option.
    """
    known, given = train_options(), plain_values(options)
    check_known("train", given, known)
    return gather_fields(
        {name: (value,) if known[name].is_list and isinstance(value, int) else value for name, value in given.items()}
    )
