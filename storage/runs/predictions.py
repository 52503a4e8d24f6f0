"""The predictions of a run: arrays over all vertices, with an index that makes them complete."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.files import parsing, read_json
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.format.arrays import ArrayReader, ArrayRecord, ReadCounter
from gnnloom.storage.format.schema import check_version

PREDICTIONS_INDEX = "predictions.json"
#: Beginning of the names of arrays that are smoothed over the edges of the graph.
SMOOTHED = "smoothed_"


class Predictions:
    """The predictions of a run: arrays in the order of the dataset's vertices."""

    def __init__(self, path: Path) -> None:
        """Open the predictions of a run.

        Raises:
            NotFoundError: the run has no predictions.
            FormatError: the predictions are of a newer format.
            CorruptError: their index is damaged.
        """
        self.path = path
        try:
            content = read_json(path / PREDICTIONS_INDEX)
        except FileNotFoundError:
            raise NotFoundError(f"{path}: the run has no predictions; make them with `gnnloom predict`") from None
        with parsing(path / PREDICTIONS_INDEX, "the index of predictions"):
            check_version(path / PREDICTIONS_INDEX, content)
            self.facts: Mapping[str, Any] = dict(content["facts"])
            self._records = {name: ArrayRecord.from_json(name, array) for name, array in content["arrays"].items()}

    def __contains__(self, name: object) -> bool:
        return name in self._records

    @property
    def records(self) -> list[ArrayRecord]:
        """The records of all arrays."""
        return list(self._records.values())

    def array(self, name: str, counter: ReadCounter | None = None) -> ArrayReader:
        """Open ``label``, ``multilabel`` or ``target``, ``score`` or ``embedding``, to read ranges of it.

        Predictions that were smoothed also have ``smoothed_label`` and ``smoothed_score``.

        Raises:
            NotFoundError: this array was not predicted.
        """
        if name not in self._records:
            option = " --embeddings" if name == "embedding" else " --smooth" if name.startswith(SMOOTHED) else ""
            raise NotFoundError(
                f"{self.path}: no {name}; there are {', '.join(self._records)}; `gnnloom predict{option}` makes them"
            )
        return ArrayReader(self.path, self._records[name], counter)

    def label(self, start: int = 0, stop: int | None = None) -> NDArray[np.int32]:
        """(stop - start,) int32 predicted classes."""
        return self.array("label").read(start, stop)

    def multilabel(self, start: int = 0, stop: int | None = None) -> NDArray[np.int8]:
        """(stop - start, num_classes) int8; 1 for each predicted label, else 0."""
        return self.array("multilabel").read(start, stop)

    def target(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """(stop - start, num_targets) float predicted numbers of a regression."""
        return self.array("target").read(start, stop)

    def score(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """(stop - start, num_classes) float scores, before the softmax or sigmoid."""
        return self.array("score").read(start, stop)

    def embedding(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """(stop - start, width) float output of the last hidden layer."""
        return self.array("embedding").read(start, stop)

    def verify(self) -> None:
        """Read everything and compare it with the digests.

        Raises:
            CorruptError: the first damage found.
        """
        for name in self._records:
            self.array(name).verify()
