"""Reads vertex data of some rows: any array, labels, and features, which it checks and scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.disk.converted_rows import converted
from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.communicator import Communicator, Reduction
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import LEARNED, VertexRows
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place

#: Count of numbers that are checked or scaled at once: both need temporary memory of the same size.
_PIECE_NUMBERS = 1 << 18


@dataclass(frozen=True)
class Labels:
    """Labels of rows; only the task knows the meaning of the numbers.

    Attributes:
        label: (num_rows, ...) as returned by the task's
            :meth:`~gnnloom.trainer.tasks.objectives.objective.Objective.read`.
        split: (num_rows,) uint8, see ``SPLIT``.
    """

    label: Tensor
    split: Tensor

    @classmethod
    def of(cls, label: NDArray[Any], split: NDArray[Any], place: Place) -> Labels:
        """Labels in their stored form."""
        return cls(place.from_numpy(label), place.from_numpy(split))

    def take(self, rows: Tensor) -> Labels:
        """Labels of the given rows."""
        return Labels(self.label[rows], self.split[rows])

    def at(self, rows: NDArray[np.int64], place: Place) -> Labels:
        """Labels of the rows with some numbers."""
        return self.take(place.from_numpy(rows))


def read_feature(rows: VertexRows, place: Place) -> Tensor:
    """Read the features of some rows. Communicates nothing.

    Returns:
        (num_rows, num_features) of the dtype of sums.

    Raises:
        InputError: the shards have no features, or a feature that is not a finite number.
    """
    feature = place.from_numpy(read_array(rows, "feature", array_dtype(place.sum_dtype)))
    check_finite(feature, f"{rows.shards.artifact.path}/{rows.prefix}/feature", rows.vertex, place)
    return feature


def check_finite(feature: Tensor, where: str, vertex: Callable[[], NDArray[np.int64]], place: Place) -> None:
    """Refuse features that are not finite numbers.

    Args:
        where: the array, for the message.
        vertex: returns the ids of the rows.

    Raises:
        InputError: see above; the message names a vertex.
    """
    # A few rows at a time, so the check's masks do not add to the peak memory.
    if not all(_are_finite(part) for part in _pieces(feature, place)):
        row = int((~feature.isfinite()).any(1).nonzero()[0, 0])
        raise InputError(f"{where}: vertex {int(vertex()[row])} has a feature that is not a finite number")


def _are_finite(numbers: Tensor) -> bool:
    # A sum is finite only if all numbers are, and takes a fraction of the time of masks; but a sum of finite numbers
    # may overflow. The masks select numbers that are not finite, because a forecast leaves masks at zero.
    return math.isfinite(float(numbers.sum())) or not bool((numbers.isnan() | numbers.isinf()).any())


def settled_feature_norm(feature: Tensor, norm: str, comm: Communicator) -> str:
    """Resolve ``auto``: ``row`` if no feature of any rank is negative, else ``none``. Collective."""
    if norm != "auto":
        return norm
    # An integer, because MPI defines no maximum of booleans.
    negative = (feature < 0).any().to(torch.int64).reshape(1)
    comm.all_reduce(negative, Kind.SETUP, Reduction.MAX)
    return "none" if bool(negative) else "row"


def normalize_feature(feature: Tensor, norm: str, place: Place) -> Tensor:
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
    for rows in _pieces(feature, place):
        # The smallest positive number instead of 0 keeps rows of zeros at zero.
        rows.div_(rows.abs().sum(1, keepdim=True).clamp_min_(torch.finfo(feature.dtype).tiny))
    return feature


def as_features(rows: NDArray[Any], norm: str, place: Place) -> Tensor:
    """(num_rows, num_features) stored rows as features, in the dtype of sums. Communicates nothing.

    Args:
        rows: (num_rows, num_features) of any dtype in which features are stored; their memory may be changed.
        norm: see :func:`normalize_feature`.
    """
    return normalize_feature(place.from_numpy(converted(rows, array_dtype(place.sum_dtype))), norm, place)


def _pieces(feature: Tensor, place: Place) -> Iterable[Tensor]:
    """The rows in pieces. Threads share the rows of a piece, so it must not be too short."""
    return place.steps(torch.split(feature, max(1, _PIECE_NUMBERS // max(1, feature.shape[1]))))


def read_array(rows: VertexRows, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Read an array of some rows. Communicates nothing.

    Raises:
        InputError: the shards do not have it.
    """
    check_stored(rows, name)
    return rows.read(name, dtype)


def check_stored(rows: VertexRows, name: str) -> None:
    """Refuse shards without an array of the vertices.

    Raises:
        InputError: the shards do not have it.
    """
    if name not in rows:
        dataset = rows.shards.artifact.path.parent.parent.name
        how = ", next to the same features, and `--split FILE` with train, valid, test or none per vertex"
        raise InputError(
            f"{rows.shards.artifact.path}: the shards have no {name}; add one with `gnnloom features {dataset} ...`"
            f"{how if name == 'split' else ''} (or ingest a source that has it) and run `gnnloom shard` again"
            f"{LEARNED if name == 'feature' else ''}"
        )
