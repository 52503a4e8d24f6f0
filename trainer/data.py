"""What a rank knows of its own vertices: features, labels and split, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from mpi4py import MPI
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.storage.grid_shards import GridShards
from gnnloom.storage.row_shards import RowShards
from gnnloom.storage.vertices import NO_LABEL, SPLIT
from gnnloom.trainer.comm import Communicator, Kind

FEATURE_NORMS = ("auto", "row", "none")


class VertexRows(Protocol):
    """Some rows of the vertex data of shards."""

    @property
    def shards(self) -> RowShards | GridShards: ...

    @property
    def prefix(self) -> str:
        """Where they lie, for messages."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str) -> NDArray[Any]:
        """The rows of an array such as ``feature``."""
        ...

    def vertex(self) -> NDArray[np.int64]:
        """(num_rows,) int64 global ids."""
        ...


@dataclass(frozen=True)
class Labels:
    """Labels and split of this rank's rows.

    Attributes:
        label: (num_rows,) int64, -1 where there is none.
        split: (num_rows,) uint8, see ``SPLIT``.
    """

    label: Tensor
    split: Tensor
    num_classes: int

    @property
    def training(self) -> Tensor:
        """(num_rows,) bool: vertices that the loss counts."""
        return (self.split == SPLIT["train"]) & (self.label >= 0)


def read_labels(rows: VertexRows) -> Labels:
    """Read the labels and split of some rows. Communicates nothing.

    Raises:
        InputError: the shards lack labels or a split, or hold a label out of range.
    """
    label = torch.from_numpy(_read(rows, "label").astype(np.int64))
    num_classes = rows.shards.num_classes
    if len(label) and (int(label.max()) >= num_classes or int(label.min()) < NO_LABEL):
        raise InputError(
            f"{rows.shards.artifact.path}/{rows.prefix}/label: labels from {int(label.min())} to {int(label.max())},"
            f" expected {NO_LABEL} (none) to {num_classes - 1}"
        )
    return Labels(label, torch.from_numpy(_read(rows, "split")), num_classes)


def read_feature(rows: VertexRows, dtype: torch.dtype) -> Tensor:
    """Read the features of some rows. Communicates nothing.

    Returns:
        (num_rows, num_features) of ``dtype``.

    Raises:
        InputError: the shards hold no features, or one that is not a finite number.
    """
    feature = torch.from_numpy(_read(rows, "feature")).to(dtype)
    if not bool(feature.isfinite().all()):
        row = int((~feature.isfinite()).any(1).nonzero()[0, 0])
        raise InputError(
            f"{rows.shards.artifact.path}/{rows.prefix}/feature: vertex {int(rows.vertex()[row])} has a feature"
            " that is not a finite number"
        )
    return feature


def normalise_feature(feature: Tensor, norm: str, comm: Communicator) -> Tensor:
    """Scale the features of every vertex. Collective.

    Args:
        feature: (num_rows, num_features) whole rows.
        norm: ``row`` divides each row by the sum of its absolute values, as usual for word counts; ``auto`` does
            so if no feature of any rank is negative; ``none`` leaves them.
    """
    if norm == "auto":
        negative = (feature < 0).any().to(torch.int64).reshape(1)
        comm.all_reduce(negative, Kind.SETUP, MPI.MAX)
        norm = "none" if bool(negative) else "row"
    if norm == "none":
        return feature
    return feature / feature.abs().sum(1, keepdim=True).clamp_min_(torch.finfo(feature.dtype).tiny)


def _read(rows: VertexRows, name: str) -> NDArray[Any]:
    if name not in rows:
        dataset = rows.shards.artifact.path.parent.parent.name
        raise InputError(
            f"{rows.shards.artifact.path}: the shards hold no {name}; add one with `gnnloom features {dataset} ...`"
            " (or ingest a source that has it) and run `gnnloom shard` again"
        )
    return rows.read(name)
