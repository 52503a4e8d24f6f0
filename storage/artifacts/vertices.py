"""The data of a dataset's vertices: features, labels and the split."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.artifact import Artifact

#: Values of the ``split`` array.
SPLIT = {"none": 0, "train": 1, "valid": 2, "test": 3}
#: The smallest of them, and one more than the largest.
SPLIT_BOUNDS: Final = (0, 4)
#: Value in ``label`` and ``multilabel`` of a vertex without a known label.
NO_LABEL = -1


class Vertices:
    """Features, labels (or targets of a regression) and the split; any of them may be absent."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.num_vertices: int = artifact.sizes["vertex"]
        self.num_features: int = artifact.sizes.get("feature", 0)
        self.num_classes: int = artifact.facts.get("num_classes", 0)
        self.num_targets: int = artifact.facts.get("num_targets", 0)

    def __repr__(self) -> str:
        return f"Vertices({self.num_vertices:,} vertices, {self.num_features} features, {self.num_classes} classes)"

    def array(self, name: str) -> ArrayReader:
        """Open one array; reading a label or a split that there is not is an error."""
        bounds = {"label": (NO_LABEL, self.num_classes), "multilabel": (NO_LABEL, 2), "split": SPLIT_BOUNDS}
        return self.artifact.array(name, bounds=bounds.get(name))

    @property
    def has_feature(self) -> bool:
        return "feature" in self.artifact

    @property
    def has_label(self) -> bool:
        return "label" in self.artifact

    @property
    def has_multilabel(self) -> bool:
        return "multilabel" in self.artifact

    @property
    def has_target(self) -> bool:
        return "target" in self.artifact

    @property
    def has_split(self) -> bool:
        return "split" in self.artifact

    def feature(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """(stop - start, num_features) float32 or float64."""
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
