"""Features, labels and split of a rank's own vertices, read and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import NO_LABEL, SPLIT
from gnnloom.trainer.comm.communicator import Communicator, Reduction
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.vertex_rows import VertexRows
from gnnloom.trainer.kernels.arrays import array_dtype

#: Rows that are checked or scaled at once: both need temporary memory of their size.
_PIECE_ROWS = 256


@dataclass(frozen=True)
class Labels:
    """Labels and split of this rank's rows.

    Attributes:
        label: (num_rows,) int64, -1 for none; in a multi-label task (num_rows, num_classes) int8, 1 or 0, -1 for
            unknown; in a regression (num_rows, num_classes) float, NaN for unknown.
        split: (num_rows,) uint8, see ``SPLIT``.
        num_classes: number of classes, or of the numbers that a regression predicts.
    """

    label: Tensor
    split: Tensor
    num_classes: int

    @property
    def is_regression(self) -> bool:
        return self.label.is_floating_point()

    @property
    def is_multilabel(self) -> bool:
        return self.label.dim() == 2 and not self.is_regression

    def known(self, split: str) -> Tensor:
        """(num_rows,) bool: vertices of a split of which at least one label is known."""
        known = ~self.label.isnan() if self.is_regression else self.label >= 0
        return (self.split == SPLIT[split]) & (known.any(1) if self.label.dim() == 2 else known)


def read_labels(rows: VertexRows) -> Labels:
    """Read the labels and split of some rows. Communicates nothing.

    Raises:
        InputError: the shards lack labels or a split, or have labels out of range or for another number of classes.
    """
    if "target" in rows:
        return Labels(_read_target(rows), torch.from_numpy(_read(rows, "split")), rows.shards.num_outputs)
    if "multilabel" in rows:
        return Labels(_read_multilabel(rows), torch.from_numpy(_read(rows, "split")), rows.shards.num_classes)
    # int64, because torch indexes with labels.
    label = torch.from_numpy(_read(rows, "label").astype(np.int64))
    num_classes = rows.shards.num_classes
    if len(label) and (int(label.max()) >= num_classes or int(label.min()) < NO_LABEL):
        raise InputError(
            f"{rows.shards.artifact.path}/{rows.prefix}/label: labels from {int(label.min())} to {int(label.max())},"
            f" expected {NO_LABEL} (none) to {num_classes - 1}"
        )
    return Labels(label, torch.from_numpy(_read(rows, "split")), num_classes)


def _read_target(rows: VertexRows) -> Tensor:
    target = torch.from_numpy(_read(rows, "target"))
    if target.shape[1] != rows.shards.num_outputs:
        where = f"{rows.shards.artifact.path}/{rows.prefix}/target"
        raise InputError(f"{where}: {target.shape[1]} columns, expected {rows.shards.num_outputs}")
    if bool(target.isinf().any()):
        row = int(target.isinf().any(1).nonzero()[0, 0])
        raise InputError(
            f"{rows.shards.artifact.path}/{rows.prefix}/target: vertex {int(rows.vertex()[row])} has an infinite value"
        )
    return target


def _read_multilabel(rows: VertexRows) -> Tensor:
    label, num_classes = torch.from_numpy(_read(rows, "multilabel")), rows.shards.num_classes
    where = f"{rows.shards.artifact.path}/{rows.prefix}/multilabel"
    if label.shape[1] != num_classes:
        raise InputError(f"{where}: {label.shape[1]} columns, expected the {num_classes} classes of the dataset")
    if label.numel() and not NO_LABEL <= int(label.min()) <= int(label.max()) <= 1:
        raise InputError(f"{where}: labels from {int(label.min())} to {int(label.max())}, expected 0, 1 or {NO_LABEL}")
    return label


def read_feature(rows: VertexRows, dtype: torch.dtype) -> Tensor:
    """Read the features of some rows. Communicates nothing.

    Returns:
        (num_rows, num_features) of ``dtype``.

    Raises:
        InputError: the shards have no features, or a feature that is not a finite number.
    """
    feature = torch.from_numpy(_read(rows, "feature", array_dtype(dtype)))
    # A few rows at a time, so the check's masks do not add to the peak memory.
    if not all(bool(part.isfinite().all()) for part in torch.split(feature, _PIECE_ROWS)):
        row = int((~feature.isfinite()).any(1).nonzero()[0, 0])
        raise InputError(
            f"{rows.shards.artifact.path}/{rows.prefix}/feature: vertex {int(rows.vertex()[row])} has a feature"
            " that is not a finite number"
        )
    return feature


def settled_feature_norm(feature: Tensor, norm: str, comm: Communicator) -> str:
    """What ``auto`` stands for: ``row`` if no feature of any rank is negative, else ``none``. Collective."""
    if norm != "auto":
        return norm
    # An integer, because MPI defines no maximum of booleans.
    negative = (feature < 0).any().to(torch.int64).reshape(1)
    comm.all_reduce(negative, Kind.SETUP, Reduction.MAX)
    return "none" if bool(negative) else "row"


def normalize_feature(feature: Tensor, norm: str) -> Tensor:
    """Scale the features of every vertex, in their memory. Communicates nothing.

    Args:
        feature: (num_rows, num_features) whole rows.
        norm: ``row`` divides each row by the sum of its absolute values, as is usual for word counts; ``none`` leaves
            the features unchanged.

    Returns:
        ``feature``.
    """
    if norm == "none":
        return feature
    for rows in torch.split(feature, _PIECE_ROWS):
        # The smallest positive number instead of 0 keeps rows of zeros at zero.
        rows.div_(rows.abs().sum(1, keepdim=True).clamp_min_(torch.finfo(feature.dtype).tiny))
    return feature


def _read(rows: VertexRows, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    if name not in rows:
        dataset = rows.shards.artifact.path.parent.parent.name
        raise InputError(
            f"{rows.shards.artifact.path}: the shards have no {name}; add one with `gnnloom features {dataset} ...`"
            " (or ingest a source that has it) and run `gnnloom shard` again"
        )
    return rows.read(name, dtype)
