"""Features and labels of the vertices of a batch, and the vertices of a split; only the rows of a batch are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from gnnloom.storage.artifacts.mapped_vertices import map_vertices, split_vertices
from gnnloom.storage.artifacts.samples import ONLY_TYPE
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.disk.row_buffers import RowBuffers
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT, as_trained, label_name
from gnnloom.trainer.feed.feature_view import FeatureView, MappedFeatures
from gnnloom.trainer.loader.choices import ALL_VERTICES, FEATURES
from gnnloom.trainer.place.place import Place

#: Types of features by their names.
FEATURE_DTYPES: Final[Mapping[str, torch.dtype]] = MappingProxyType(
    dict(zip(FEATURES, (torch.float32, torch.bfloat16, torch.float64), strict=False))
)


@dataclass(frozen=True)
class VertexChoice:
    """Choice of the vertex data to read.

    Attributes:
        key: key of the vertex data; None to read none.
        features: one of :data:`gnnloom.trainer.loader.choices.FEATURES`.
        feature_norm: see :func:`gnnloom.trainer.data.vertex_data.normalize_feature`.
        labels: read labels.
        finite: refuse features that are not finite numbers.
    """

    key: str | None
    features: str = "float32"
    feature_norm: str = "none"
    labels: bool = True
    finite: bool = False

    @property
    def place(self) -> Place:
        """Place of the tensors."""
        return Place(FEATURE_DTYPES.get(self.features, torch.float32))


class VertexFields:
    """The tensors of a batch's vertices; any thread may ask for them.

    The memory of features is reused as soon as nothing refers to them.
    """

    def __init__(
        self,
        vertices: Vertices | None,
        choice: VertexChoice,
        kept: int,
        dataset: Path,
        beside: Sequence[NDArray[Any]] = (),
    ) -> None:
        """Map the requested data.

        Args:
            kept: arrays of features to keep that are not in use.
            dataset: its folder, for messages.
            beside: mapped arrays that batches read as well.

        Raises:
            InputError: the vertices have no features or no labels, although they are requested.
        """
        self._choice, self._place = choice, choice.place
        self._arrays = {} if vertices is None else map_vertices(vertices)
        self._label = label_name(self._arrays)
        wanted = [
            *(["feature"] if choice.features in FEATURE_DTYPES else []),
            *([self._label] if choice.labels else []),
        ]
        missing = next((name for name in wanted if name not in self._arrays), None)
        if missing:
            what, keyword = ("features", "features='none'") if missing == "feature" else ("labels", "labels=False")
            where = dataset if vertices is None else vertices.artifact.path
            raise InputError(
                f"{where}: the vertices have no {what}; add some with `gnnloom features {dataset.name} ...`, or pass"
                f" {keyword}"
            )
        self._features: FeatureView | None = None
        if choice.features in FEATURE_DTYPES:
            checked = None if vertices is None or not choice.finite else str(vertices.artifact.path / "feature")
            stored, buffers = self._arrays["feature"], RowBuffers(kept)
            self._features = MappedFeatures(stored, choice.feature_norm, self._place, checked, buffers, beside)

    @property
    def views(self) -> dict[str, FeatureView]:
        """The view of the features, if requested, in the form of a graph without types."""
        return {} if self._features is None else {ONLY_TYPE: self._features}

    def of(self, vertices: NDArray[np.int64], features: FeatureView | None = None) -> dict[str, Any]:
        """``x`` (num_vertices, num_features), and the array ``y`` (num_vertices, ...), as far as requested.

        Args:
            vertices: (num_vertices,) int64.
            features: the view from which to take ``x``, instead of the object's own view.
        """
        found, features = dict[str, Any](), features or self._features
        if features is not None:
            found["x"] = features.rows(vertices).to(self._place.feature_dtype)
        if self._choice.labels:
            label = np.take(self._arrays[self._label], vertices, axis=0)
            found["y"] = as_trained(self._label, label)
        return found

    def masks(self, vertices: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """``train_mask``, ``val_mask`` and ``test_mask``, each (num_vertices,) bool; nothing without a split."""
        if "split" not in self._arrays:
            return {}
        split = np.take(self._arrays["split"], vertices)
        names = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}
        return {name: split == SPLIT[value] for name, value in names.items()}

    def seeds(self, split: str, num_vertices: int) -> NDArray[np.int64]:
        """The vertices of a split; only vertices with a known label, if labels are requested.

        Args:
            split: a split, or ``ALL_VERTICES`` for all vertices, with and without labels.
            num_vertices: of the graph, or of the type.

        Returns:
            (num_seeds,) int64, ascending.

        Raises:
            InputError: the vertices have no split, or no vertex is in the split.
        """
        labeled = ""
        if split == ALL_VERTICES:
            seeds = np.arange(num_vertices)
        elif "split" in self._arrays:
            seeds = split_vertices(self._arrays, split, labeled=self._choice.labels)
            labeled = " with a label" if self._choice.labels else ""
        else:
            raise InputError(
                f"split {split}: the dataset has no split; add one with `gnnloom features`, or pass vertices"
            )
        if not len(seeds):
            raise InputError(f"split {split}: no vertex{labeled} is in it")
        return seeds
