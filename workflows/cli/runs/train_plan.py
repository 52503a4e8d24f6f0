"""`gnnloom train --plan`: what a training will need."""

from __future__ import annotations

from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.cli.terminal.output import show


def show_train_plan(config: TrainConfig, *, restart: bool, as_json: bool) -> None:
    """Print what a training is projected to need.

    Raises:
        NotFoundError: the dataset or its shards do not exist.
        ExistsError, InputError: the training would be refused.
    """
    from gnnloom.trainer.training.projection import project_training

    projection = project_training(config, restart=restart)
    title = f"plan: run {projection.run} of {projection.dataset}"
    show(projection.to_json(), as_json=as_json, title=title)
