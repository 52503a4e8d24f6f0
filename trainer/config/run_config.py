"""Options about the inputs and outputs of a run: dataset and shards; name, seed, evaluations and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gnnloom.storage.catalog import check_name
from gnnloom.storage.option import Group
from gnnloom.trainer.config.fields import Config, option
from gnnloom.trainer.loggers.registry import LOGGERS

_data = partial(option, group=Group.DATA)
_option = partial(option, group=Group.CHECKPOINTS)


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """The dataset, the shards that a run reads, and how it scales the input features."""

    catalog: str = _data(text="Directory of the catalog", free=True)
    dataset: str = _data(text="Name of the dataset")
    shards: str | None = _data(None, "Key of the shards, if the dataset has several", free=True)
    method: str | None = _data(None, "Partitioner whose shards to use, if the dataset has several", free=True)
    permutation: str | None = _data(
        None, "Permutation of the grid shards to use, if the dataset has several", free=True
    )
    adjacency: str = _data(
        "memory",
        "Where to keep the adjacency during training; disk: read it for every product (p2p); losses are the same up to"
        " rounding, and bit-identical on one rank",
        choices=("memory", "disk"),
        free=True,
    )
    feature_norm: str = _data(
        "auto",
        "Whether to scale each vertex's features to a sum of 1; auto: only if no feature is negative, as with word"
        " counts, and never in a graph with types, whose features come from columns of tables",
        choices=("auto", "row", "none"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.dataset)


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """The name of a run, its seed, and its output."""

    seed: int = _option(0, "Seed of the initial weights and of dropout", least=0, group=Group.OPTIMIZATION)
    eval_every: int = _option(
        10, "Epochs between evaluations; 0: only at the end", free=True, least=0, group=Group.LOGGING
    )
    final_eval: bool = _option(
        True, "Evaluate after the last epoch, regardless of --eval-every", free=True, group=Group.LOGGING
    )
    evaluation_memory: int = _option(
        0,
        "Memory of each rank for evaluations from disk, such as 2G; 0: more than half of the free memory of the"
        " machine",
        free=True,
        least=0,
        is_size=True,
        group=Group.LOGGING,
    )
    checkpoint_every: int = _option(
        0, "Epochs between checkpoints; 0: a checkpoint every ten minutes and at the end", free=True, least=0
    )
    keep: int = _option(2, "Number of latest checkpoints to keep", free=True, least=1)
    name: str | None = _option(
        None, "Name of the run; derived from the parameters by default", name="run", is_common=True, free=True
    )
    log: tuple[str, ...] = _option(
        (),
        f"Also log the metrics to some of {', '.join(LOGGERS)}",
        kind=tuple[str, ...],
        group=Group.LOGGING,
        free=True,
    )
    save_embeddings: bool = _option(
        False, "Predict after training, and also store the output of the last hidden layer", free=True, group=Group.TASK
    )
    wait_timeout: float = _option(
        600.0,
        "Seconds that a rank waits for others before the run ends with a report; 0: forever",
        free=True,
        least=0,
        group=Group.DISTRIBUTION,
    )
    profile: bool = _option(
        False,
        "Add a time profile of every rank to the metrics; costs a barrier per message",
        free=True,
        group=Group.LOGGING,
    )

    @property
    def evaluates(self) -> bool:
        """The run measures its metrics at least once."""
        return self.eval_every > 0 or self.final_eval

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name is not None:
            check_name(self.name, "run")
