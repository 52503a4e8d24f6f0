"""The command that repeats a run."""

from __future__ import annotations

import shlex
from pathlib import Path

from gnnloom.storage.option import options_of
from gnnloom.trainer.config.train_config import TrainConfig

#: Fields that are not options of their own, and those that say how to go on with a run rather than what to train.
_LEFT_OUT = frozenset({"catalog", "dataset", "algorithm_options", "mode_options", "restart"})


def command_line(config: TrainConfig) -> str:
    """``gnnloom train`` with every option that differs from its default, quoted for a shell."""
    words = ["gnnloom", "--catalog", str(Path(config.catalog).absolute()), "train", config.dataset]
    for name, option in options_of(TrainConfig).items():
        value = getattr(config, name)
        if name in _LEFT_OUT or value == option.default:
            continue
        flag = name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{flag}"] if option.kind is bool else [f"--{flag}", option.shown(value)]
    for item in config.algorithm_options:
        name, _, value = item.partition("=")
        words += [f"--{name.replace('_', '-')}", value]
    return shlex.join(words)
