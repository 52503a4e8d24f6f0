"""Options for the inputs of a run: the dataset and its shards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gnnloom.storage.catalog import check_name
from gnnloom.storage.option import Group
from gnnloom.trainer.config.fields import Config, option

_option = partial(option, group=Group.DATA)


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """The dataset, the shards that a run reads, and how it scales the input features."""

    catalog: str = _option(text="Directory of the catalog", free=True)
    dataset: str = _option(text="Name of the dataset")
    shards: str | None = _option(None, "Key of the shards, if the dataset has several", free=True)
    method: str | None = _option(None, "Partitioner whose shards to use, if the dataset has several", free=True)
    permutation: str | None = _option(
        None, "Permutation of the grid shards to use, if the dataset has several", free=True
    )
    adjacency: str = _option(
        "memory",
        "Where the adjacency is while the run trains; disk: it is read again for every product (p2p); the losses"
        " agree, on one rank to the last bit",
        choices=("memory", "disk"),
        free=True,
    )
    feature_norm: str = _option(
        "auto",
        "Scaling of each vertex's features to a sum of 1; auto: if no feature is negative, as with word counts, but"
        " never in a graph with types, whose features come from columns of tables",
        choices=("auto", "row", "none"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.dataset)
