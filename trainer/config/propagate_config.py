"""The configuration of a propagation: the matrix, the adjacency's normalization, and the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnnloom.storage.format.artifact import artifact_key
from gnnloom.storage.option import Group
from gnnloom.storage.shards.row_shards import RowShards
from gnnloom.trainer.config.fields import Config, option
from gnnloom.trainer.data.adjacency_scaling import NORMALIZATIONS
from gnnloom.trainer.data.open_shards import ShardRequest
from gnnloom.trainer.propagation.memory import ADJACENCY
from gnnloom.trainer.propagation.source_rows import PROPAGABLE

_computed = partial(option, group=Group.DATA, is_common=True)
_executed = partial(option, group=Group.EXECUTION)


@dataclass(frozen=True, kw_only=True)
class PropagateConfig(Config):
    """Options of a propagation: the values, the number of steps, and the ranks."""

    catalog: str = option(text="Directory of the catalog")
    dataset: str = option(text="Name of the dataset")
    matrix: str = _computed(
        "feature",
        "Matrix to propagate; label: the labels of the training vertices, as one column of zeros and ones per class",
        name="of",
        choices=tuple(PROPAGABLE),
    )
    steps: int = _computed(3, "Number of products K: the command stores A X to A^K X", least=1, most=1000, metavar="K")
    normalization: str = _computed(
        "symmetric", "Normalization of the adjacency with self loops", choices=NORMALIZATIONS
    )
    ppr: float | None = _computed(
        None,
        "Teleport probability of personalized PageRank: store the diffused matrix after K steps instead of the powers",
        kind=float,
        above=0.0,
        most=1.0,
        default_text="powers",
        metavar="ALPHA",
    )
    ranks: int = _executed(1, "Number of MPI ranks (and of row shards)", least=1, is_common=True)
    shards: str | None = option(
        None, "Key of the row shards, if there are several for these ranks", group=Group.INPUT, metavar="KEY"
    )
    method: str | None = option(None, "Partitioner of the row shards, if there are several", group=Group.INPUT)
    memory: int | None = _executed(
        None,
        "Memory limit per rank; a rank with more memory multiplies more columns at once",
        kind=int,
        is_size=True,
        least=1,
        is_common=True,
        default_text="most of the free memory",
    )
    adjacency: str = _executed(
        "auto",
        "Where to keep the adjacency during products; auto: on disk if that makes room for more columns",
        choices=ADJACENCY,
    )
    threads: int = _executed(0, "Threads per rank; 0: an equal share of the machine's cores", least=0, most=4096)
    scratch: str | None = _executed(
        None, "Folder for temporary files, visible to all ranks", default_text="in the dataset", metavar="DIR"
    )
    wait_timeout: float = _executed(
        600.0, "Seconds that a rank waits for other ranks before it reports them and ends; 0: forever", least=0
    )

    @property
    def shard_request(self) -> ShardRequest:
        """The choice of row shards."""
        return ShardRequest(algorithm="p2p", ranks=self.ranks, key=self.shards, method=self.method)

    def parameters(self) -> dict[str, Any]:
        """Parameters that determine the values, except the inputs."""
        return {"of": self.matrix, "steps": self.steps, "normalization": self.normalization, "ppr": self.ppr}

    @staticmethod
    def inputs(shards: RowShards) -> dict[str, str]:
        """Kind to key of the inputs of the values; on other shards, sums are rounded in another order."""
        return _inputs(shards.artifact.key, shards.artifact.inputs)

    def key(self, shards: str, made_from: Mapping[str, str]) -> str:
        """Key of the values on row shards.

        Args:
            shards: key of the shards.
            made_from: kind to key of the inputs of the shards.
        """
        return artifact_key("propagated", self.parameters(), _inputs(shards, made_from))


def _inputs(shards: str, made_from: Mapping[str, str]) -> dict[str, str]:
    return {kind: made_from[kind] for kind in ("graph", "vertices") if kind in made_from} | {"shards": shards}
