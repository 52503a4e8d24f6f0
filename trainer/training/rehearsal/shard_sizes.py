"""The sizes of the shards that a training reads: of stored ones, from their manifest, or estimated beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnloom.storage.disk.files import tree_bytes
from gnnloom.storage.shards.row_shards import RowShards
from gnnloom.trainer.config.task_config import TaskConfig

if TYPE_CHECKING:
    # A job on row shards need not load them.
    from gnnloom.storage.shards.grid_shards import GridShards
    from gnnloom.trainer.data.open_shards import RunData
    from gnnloom.trainer.data.typed_vertices import TypedVertices


@dataclass(frozen=True)
class RowShardSizes:
    """The row shard of one rank.

    Attributes:
        own: vertices that the rank owns.
        sent, halo: rows that it sends and receives per product.
        nonzeros: of its rows.
        read_bytes: that it reads, as stored.
    """

    own: int
    sent: int
    halo: int
    nonzeros: int
    read_bytes: int


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Sizes that both kinds of shards have.

    Attributes:
        num_outputs: width of the model's output.
    """

    num_vertices: int
    num_features: int
    num_outputs: int
    symmetric: bool
    weighted: bool


def _common(shards: RunData, config: TaskConfig) -> dict[str, Any]:
    return {
        "num_vertices": shards.num_vertices,
        "num_features": shards.num_features,
        "num_outputs": config.output_width(config.task_of(shards, shards, shards.artifact.path), shards),
        "symmetric": shards.symmetric,
        "weighted": shards.weighted,
    }


@dataclass(frozen=True, kw_only=True)
class RowSizes(_Sizes):
    """Row shards.

    Attributes:
        ranks: all ranks, or some that stand for them.
        index_bytes: of a column id.
    """

    ranks: tuple[RowShardSizes, ...]
    index_bytes: int

    @property
    def nnz(self) -> int:
        """Nonzeros of the matrix; estimated if not all ranks are known."""
        own, nonzeros = sum(rank.own for rank in self.ranks), sum(rank.nonzeros for rank in self.ranks)
        return nonzeros * self.num_vertices // max(1, own)

    @classmethod
    def of(cls, shards: RowShards, config: TaskConfig, *, reads_features: bool = True) -> RowSizes:
        """The sizes of stored shards; reads their manifest, and measures their folders."""
        prefixes = [f"row/{rank:05d}" for rank in range(shards.num_parts)]
        kinds = [
            shards.artifact.record(f"{prefix}/{side}/indices").dtype for prefix in prefixes for side in ("own", "halo")
        ]
        return cls(
            **_common(shards, config),
            ranks=tuple(_rank_sizes(shards, prefix, reads_features) for prefix in prefixes),
            index_bytes=max(np.dtype(kind).itemsize for kind in kinds),
        )

    @classmethod
    def of_types(cls, data: TypedVertices, config: TaskConfig, num_ranks: int) -> RowSizes:
        """The sizes of the ranges of predicted vertices: ranks map the graph, and read the pairs that they have."""
        nnz = sum(each.nnz for each in data.relations)
        read = 0 if data.links is None else tree_bytes(data.links.artifact.path) // num_ranks
        spans = (data.owners(num_ranks).spans(rank) for rank in range(num_ranks))
        own = (sum(stop - start for start, stop in each) for each in spans)
        ranks = tuple(RowShardSizes(count, 0, 0, nnz // num_ranks, read) for count in own)
        return cls(**_common(data, config), ranks=ranks, index_bytes=np.dtype(np.int64).itemsize)


def _rank_sizes(shards: RowShards, prefix: str, reads_features: bool) -> RowShardSizes:
    own, sent, halo, own_nonzeros, halo_nonzeros = (
        shards.artifact.record(f"{prefix}/{name}").shape[0]
        for name in ("vertex", "send_row", "halo_vertex", "own/indices", "halo/indices")
    )
    read = _read_bytes(shards.artifact.path / prefix, reads_features)
    return RowShardSizes(own, sent, halo, own_nonzeros + halo_nonzeros, read)


def _read_bytes(folder: Path, reads_features: bool) -> int:
    """Stored bytes of a folder of shards, without features that are not read."""
    return tree_bytes(folder) - (0 if reads_features else sum(map(tree_bytes, folder.glob("**/feature"))))


@dataclass(frozen=True, kw_only=True)
class GridSizes(_Sizes):
    """Grid shards.

    Attributes:
        nnz: nonzeros of the matrix, if every cell had the number of the largest cell.
        is_double: rows and columns have different orders.
        variant_bytes: stored bytes of each variant of the matrix.
        order_bytes: stored bytes of the vertex data in one order.
    """

    nnz: int
    is_double: bool
    variant_bytes: Mapping[str, int]
    order_bytes: int

    def bytes_of(self, entries: float, rows: float) -> int:
        """Stored bytes of a share of the entries of one variant, and of the vertex data of a share of the rows."""
        variants = max(1, len(self.variant_bytes))
        return int(entries * sum(self.variant_bytes.values()) / variants + rows * self.order_bytes)

    @classmethod
    def of(cls, shards: GridShards, config: TaskConfig, *, reads_features: bool = True) -> GridSizes:
        """The sizes of stored shards; reads their manifest, and measures their folders."""
        facts, path = shards.artifact.facts, shards.artifact.path
        return cls(
            **_common(shards, config),
            nnz=int(facts["nnz"] * max(facts["balance"].values())),
            is_double=shards.permutation == "double",
            variant_bytes={folder.name: tree_bytes(folder) for folder in (path / "grid").iterdir() if folder.is_dir()},
            order_bytes=max(
                _read_bytes(folder, reads_features) for folder in (path / "order").iterdir() if folder.is_dir()
            ),
        )


#: Shards of either kind.
ShardSizes = RowSizes | GridSizes


def sizes_of(shards: RunData, config: TaskConfig, num_ranks: int, *, reads_features: bool = True) -> ShardSizes:
    """The sizes of stored shards, or of the vertices of a graph with types that are predicted.

    Args:
        config: the task, which decides how wide the model's output is.
        reads_features: the training reads the features; otherwise it learns others.

    Raises:
        InputError: the shards lack what the task predicts.
    """
    # No other runs need them.
    from gnnloom.trainer.data.typed_vertices import TypedVertices  # noqa: PLC0415

    if isinstance(shards, TypedVertices):
        return RowSizes.of_types(shards, config, num_ranks)
    if isinstance(shards, RowShards):
        return RowSizes.of(shards, config, reads_features=reads_features)
    return GridSizes.of(shards, config, reads_features=reads_features)
