"""The command that repeats a run."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from gnnloom.trainer.config.fields import option_of
from gnnloom.trainer.config.train_config import TrainConfig

#: Fields that are not options of their own, and those that say how to go on with a run rather than what to train.
_LEFT_OUT = frozenset({"catalog", "dataset", "algorithm_options", "restart"})


def command_line(config: TrainConfig) -> str:
    """``gnnloom train`` with every option that differs from its default, quoted for a shell."""
    words = ["gnnloom", "--catalog", str(Path(config.catalog).absolute()), "train", config.dataset]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in _LEFT_OUT and value != option_of(field).default:
            words += _option(field.name, _shown(field, value))
    for item in config.algorithm_options:
        name, _, value = item.partition("=")
        words += _option(name, value)
    return shlex.join(words)


def _shown(field: dataclasses.Field[Any], value: Any) -> Any:
    """The word that stands for a value, if there is one."""
    return next((word for word, meant in option_of(field).words.items() if meant == value), value)


def _option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if isinstance(value, tuple):
        return [f"--{flag}", ("x" if name == "grid" else ",").join(map(str, value))]
    return [f"--{flag}", str(value)]
