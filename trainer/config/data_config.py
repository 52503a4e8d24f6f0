"""What a run reads: the dataset and its shards."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.storage.catalog import check_name
from gnnloom.trainer.config.fields import Config, option


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """The dataset, the shards that a run reads, and how it scales the input features."""

    catalog: str = option(text="Directory of the catalog", free=True)
    dataset: str = option(text="Name of the dataset")
    shards: str | None = option(None, "Key of the shards, if the dataset has several", free=True)
    method: str | None = option(None, "Partitioner whose shards to use, if the dataset has several", free=True)
    permutation: str | None = option(
        None, "Permutation of the grid shards to use, if the dataset has several", free=True
    )
    adjacency: str = option(
        "memory",
        "Where the adjacency is while the run trains; disk: it is read again for every product (p2p); the losses"
        " agree, on one rank to the last bit",
        choices=("memory", "disk"),
        free=True,
    )
    feature_norm: str = option(
        "auto",
        "Scaling of each vertex's features to a sum of 1; auto: if no feature is negative, as with word counts",
        choices=("auto", "row", "none"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.dataset)
