"""Synthetic features and labels for benchmarks on graphs that have none.

As in the evaluation of Plexus (Ranjan et al. 2025), features are standard normal; classes are random, or quantiles of
the vertices' degrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.generators.sbm import split_codes
from gnnloom.pipeline.sources.source import MOST_COLUMNS
from gnnloom.pipeline.sources.vertex_data.kind import SYNTHETIC_OPTIONS, VertexKind
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.random_numbers import normal, stream_key, uniform
from gnnloom.storage.wording import counted

#: Number of values made, and of degrees read, at a time.
_BLOCK_VALUES = 1 << 21


@dataclass(frozen=True)
class SyntheticVertices:
    """Random features with labels; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`.

    Attributes:
        graph: folder of the graph artifact.
        stated_vertices: number of vertices.
        dim: number of features.
        num_classes: number of classes.
        seed: seed of all random numbers.
        boundaries: lowest degree of class 1, 2, ...; None for random classes.
        train, valid: fractions of the vertices for training and validation; the others are for testing.
    """

    graph: Path
    stated_vertices: int
    dim: int
    num_classes: int
    seed: int
    boundaries: tuple[int, ...] | None
    train: float = 0.6
    valid: float = 0.2

    arrays = ("feature", "label", "split")
    random_access = True
    in_graph_order = True

    @classmethod
    def open(
        cls, graph: Graph | None, *, labels: str = "random", dim: int = 128, classes: int = 32, seed: int = 0
    ) -> SyntheticVertices:
        """Describe the vertex data of a stored graph; ``degree-labels`` reads the graph's degrees in blocks.

        Args:
            graph: None for a source that can only state its identity.
            labels: ``random`` or ``degree-labels``.

        Raises:
            InputError: ``labels`` is unknown, or the number of features or classes is out of range.
        """
        if labels not in {"random", "degree-labels"}:
            raise InputError(f"synthetic labels {labels!r}: expected 'random' or 'degree-labels'")
        if not (1 <= dim <= MOST_COLUMNS and 1 <= classes <= MOST_COLUMNS):
            raise InputError(
                f"synthetic features: dim {dim} and {counted(classes, 'class')}; expected 1 to {MOST_COLUMNS:,} of each"
            )
        if graph is None:
            return cls(Path(), 0, dim, classes, seed, None if labels == "random" else ())
        boundaries = degree_quantiles(graph, classes) if labels == "degree-labels" else None
        return cls(graph.artifact.path, graph.num_vertices, dim, classes, seed, boundaries)

    def identity(self) -> dict[str, Any]:
        return {
            "format": "random" if self.boundaries is None else "degree-labels",
            "dim": self.dim,
            "classes": self.num_classes,
            "seed": self.seed,
            "train": self.train,
            "valid": self.valid,
        }

    def num_vertices(self) -> int:
        return self.stated_vertices

    def num_columns(self, array: str) -> int:
        return self.dim if array == "feature" else int(array in self.arrays)

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        makers: Mapping[str, Callable[[int, int], NDArray[Any]]]
        makers = {"feature": self._features, "label": self._labels, "split": self._split}
        rows = max(1, _BLOCK_VALUES // self.num_columns(array))
        for first in range(start, stop, rows):
            yield makers[array](first, min(first + rows, stop))

    def _features(self, start: int, stop: int) -> NDArray[Any]:
        return normal(stream_key(self.seed, "feature"), start * self.dim, stop * self.dim).reshape(-1, self.dim)

    def _labels(self, start: int, stop: int) -> NDArray[np.int32]:
        if self.boundaries is None:
            draw = uniform(stream_key(self.seed, "label"), start, stop)
            return np.minimum(draw * self.num_classes, self.num_classes - 1).astype(np.int32)
        degree = Artifact(self.graph).array("degree").read(start, stop)
        return np.searchsorted(np.array(self.boundaries, np.int64), degree, side="right").astype(np.int32)

    def _split(self, start: int, stop: int) -> NDArray[np.uint8]:
        return split_codes(uniform(stream_key(self.seed, "split"), start, stop), self.train, self.valid)


def degree_quantiles(graph: Graph, num_classes: int) -> tuple[int, ...]:
    """Lowest degree of each class except the first; the classes are as equal in size as ties allow.

    There are fewer classes if one degree has more vertices than a class holds.
    """
    values, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for start in range(0, graph.num_vertices, _BLOCK_VALUES):
        found = np.unique(graph.degree(start, min(start + _BLOCK_VALUES, graph.num_vertices)), return_counts=True)
        # The histogram has one entry per distinct degree, so it stays small however many vertices there are.
        values, counts = _add_counts(values, counts, *found)
    below = np.concatenate([[0], np.cumsum(counts)[:-1]])
    targets = [graph.num_vertices * number // num_classes for number in range(1, num_classes)]
    # A class begins with the first degree that has at least its share of the vertices below it.
    chosen = np.searchsorted(below, targets, side="left")
    return tuple(sorted({int(values[position]) for position in chosen if 0 < position < len(values)}))


def _add_counts(
    values: NDArray[np.int64], counts: NDArray[np.int64], more: NDArray[np.int64], more_counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sum of two histograms that list their distinct values."""
    merged, position = np.unique(np.concatenate([values, more]), return_inverse=True)
    total = np.zeros(len(merged), np.int64)
    np.add.at(total, position, np.concatenate([counts, more_counts]))
    return merged, total


VERTEX_KIND = (
    VertexKind(
        name="random",
        order=30,
        help="random features and labels",
        open=partial(SyntheticVertices.open, labels="random"),
        options=SYNTHETIC_OPTIONS,
        is_synthetic=True,
    ),
    VertexKind(
        name="degree-labels",
        order=40,
        help="random features, classes by the degree of the vertex",
        open=partial(SyntheticVertices.open, labels="degree-labels"),
        options=SYNTHETIC_OPTIONS,
        is_synthetic=True,
    ),
)
