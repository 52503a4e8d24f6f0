"""Products of powers of the adjacency with a matrix of the vertices: A X, A^2 X, ..., or their personalized PageRank.

The values of a step are stored in blocks of :data:`COLUMNS` columns, each an array of its own: a writer has a few
columns of all vertices at a time, and no chunk has two writers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.files import parsing
from gnnloom.storage.errors import CorruptError, NotFoundError
from gnnloom.storage.format.arrays import ArrayReader, ReadCounter, default_chunk_rows
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.storage.wording import counted

#: Columns of a stored block; the last one may have fewer. Fixed, so that the bytes do not depend on a writer's memory.
COLUMNS: Final = 8
#: dtype of all values.
DTYPE: Final = np.dtype(np.float32)
DIMS: Final = ("vertex", "column")


def value_path(step: int, block: int) -> str:
    """The array with some columns of a step.

    Args:
        step: power of the adjacency, from 1.
        block: number of the block of columns, from 0.
    """
    return f"step/{step:05d}/columns/{block:05d}/value"


def num_blocks(num_features: int) -> int:
    """Number of blocks of columns of a matrix."""
    return -(-num_features // COLUMNS)


def block_columns(block: int, num_features: int) -> slice:
    """The columns of a block."""
    return slice(block * COLUMNS, min((block + 1) * COLUMNS, num_features))


def stored_chunk_rows(num_vertices: int) -> int:
    """Rows per chunk, the same for all blocks of columns, so that a writer of several has the same rows of all."""
    return default_chunk_rows((num_vertices, COLUMNS), DTYPE)


class Propagated:
    """The stored steps of a propagation, in the order of the dataset's vertices; step 0, the matrix, is not stored.

    Attributes:
        of: the matrix that was propagated: ``feature``, or ``label`` for the classes of the training vertices.
        normalization: of the adjacency: ``symmetric``, ``mean`` or ``none``.
        ppr: teleport probability of personalized PageRank; None for powers of the adjacency.
        num_steps: number of computed products.
        steps: stored steps, ascending: all steps, or for personalized PageRank the last one.
        num_features: columns of the matrix and of each step.
        graph: key of the graph.
    """

    def __init__(self, artifact: Artifact) -> None:
        """Read the facts from the manifest.

        Raises:
            CorruptError: the manifest does not describe propagated values.
        """
        self.artifact = artifact
        self._readers: dict[tuple[int, int], ArrayReader] = {}
        with parsing(artifact.path / MANIFEST, "the manifest of propagated values"):
            facts, parameters = artifact.facts, artifact.parameters
            self.num_vertices = int(artifact.sizes["vertex"])
            self.num_features = int(facts["num_features"])
            self.steps: tuple[int, ...] = tuple(int(step) for step in facts["steps"])
            self.num_steps = int(parameters["steps"])
            self.of: str = parameters["of"]
            self.normalization: str = parameters["normalization"]
            self.ppr: float | None = parameters["ppr"]
            self.graph: str = artifact.inputs["graph"]
            if int(facts["columns"]) != COLUMNS or self.num_features < 1 or not self.steps:
                raise CorruptError(
                    f"{artifact.path / MANIFEST}: blocks of {counted(facts['columns'], 'column')}, or no values"
                )

    def __repr__(self) -> str:
        stored = f"{len(self.steps)} of {counted(self.num_steps, 'step')}"
        return (
            f"Propagated({stored} of {counted(self.num_features, 'column')} of {counted(self.num_vertices, 'vertex')})"
        )

    @property
    def num_blocks(self) -> int:
        """Number of blocks of columns of each step."""
        return num_blocks(self.num_features)

    def read(
        self, step: int, start: int = 0, stop: int | None = None, counter: ReadCounter | None = None
    ) -> NDArray[np.float32]:
        """(stop - start, num_features) float32 rows of a step.

        Raises:
            NotFoundError: this step is not stored.
        """
        stop = self.num_vertices if stop is None else stop
        rows = np.empty((max(0, stop - start), self.num_features), DTYPE)
        for block in range(self.num_blocks):
            rows[:, block_columns(block, self.num_features)] = self.array(step, block, counter).read(start, stop)
        return rows

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows that end where chunks do: the cheapest to read."""
        step = stored_chunk_rows(self.num_vertices)
        for start in range(0, self.num_vertices, step):
            yield start, min(start + step, self.num_vertices)

    def array(self, step: int, block: int, counter: ReadCounter | None = None) -> ArrayReader:
        """Open one block of columns of a step.

        Raises:
            NotFoundError: this step is not stored.
            CorruptError: it has another shape than the manifest says.
        """
        if step not in self.steps:
            raise NotFoundError(
                f"{self.artifact.path}: step {step} is not stored, only {', '.join(map(str, self.steps))}"
            )
        found = None if counter is not None else self._readers.get((step, block))
        return self._open(step, block, counter) if found is None else found

    def _open(self, step: int, block: int, counter: ReadCounter | None) -> ArrayReader:
        path, columns = value_path(step, block), block_columns(block, self.num_features)
        reader = self.artifact.array(path, counter)
        expected = (self.num_vertices, columns.stop - columns.start)
        if reader.shape != expected:
            raise CorruptError(f"{self.artifact.path}/{path}: shape {reader.shape}, expected {expected}")
        if counter is None:
            # Kept, because mini-batches read a few rows at a time.
            self._readers[step, block] = reader
        return reader


def facts_of(num_features: int, steps: tuple[int, ...]) -> dict[str, Any]:
    """Facts for the manifest of propagated values, besides their parameters."""
    return {"num_features": num_features, "steps": list(steps), "columns": COLUMNS}
