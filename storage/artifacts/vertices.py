"""The data of a dataset's vertices: features, labels and the split."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS, vertex_bounds
from gnnloom.storage.wording import counted


class Vertices:
    """Features, labels (or targets of a regression) and the split; any of them may be absent."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.num_vertices: int = artifact.sizes["vertex"]
        self.num_features: int = artifact.sizes.get("feature", 0)
        self.num_classes: int = artifact.facts.get("num_classes", 0)
        self.num_targets: int = artifact.facts.get("num_targets", 0)
        #: The arrays that are stored, in the order of the registry.
        self.names = tuple(name for name in VERTEX_ARRAYS if name in artifact)
        #: Sizes of the dimensions that arrays have besides the dimension of the vertices.
        self.widths = {dim: artifact.sizes[dim] for name in self.names for dim in VERTEX_ARRAYS[name].dims}

    def __repr__(self) -> str:
        return (
            f"Vertices({counted(self.num_vertices, 'vertex')}, {counted(self.num_features, 'feature')},"
            f" {counted(self.num_classes, 'class')})"
        )

    def array(self, name: str) -> ArrayReader:
        """Open one array; reading a value outside the limits of the registry is an error."""
        return self.artifact.array(name, bounds=vertex_bounds(name, self.artifact.facts))

    @property
    def feature_columns(self) -> list[dict[str, Any]]:
        """Records of the features, in order, if they came from columns of a table; empty if they did not.

        A record has the ``name`` of the column, its ``width`` in features, the ``words`` that these stand for, the
        means that missing values are ``filled`` with, or ``missing`` if the feature says where values are missing.
        """
        return list(self.artifact.facts.get("feature_columns", ()))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes by number; empty if the labels were numbers."""
        return tuple(self.artifact.facts.get("class_names", ()))

    @property
    def has_feature(self) -> bool:
        return "feature" in self.artifact

    @property
    def has_label(self) -> bool:
        return "label" in self.artifact

    @property
    def has_target(self) -> bool:
        return "target" in self.artifact

    @property
    def has_split(self) -> bool:
        return "split" in self.artifact

    def feature(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """(stop - start, num_features) float32, float16 or float64, as stored."""
        return self.array("feature").read(start, stop)

    def label(self, start: int = 0, stop: int | None = None) -> NDArray[np.int32]:
        """(stop - start,) int32 classes; -1 if a vertex has no label."""
        return self.array("label").read(start, stop)

    def multilabel(self, start: int = 0, stop: int | None = None) -> NDArray[np.int8]:
        """(stop - start, num_classes) int8; 1 if a vertex has the label, 0 if not, -1 if unknown."""
        return self.array("multilabel").read(start, stop)

    def target(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """(stop - start, num_targets) float32 numbers to predict; NaN if unknown."""
        return self.array("target").read(start, stop)

    def split(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint8]:
        """(stop - start,) uint8 values of ``SPLIT``."""
        return self.array("split").read(start, stop)
