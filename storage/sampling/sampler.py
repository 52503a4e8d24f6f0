"""Interface of all samplers: a sample, and how to ask for one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import CSR, INT32_WIDTH
from gnnloom.storage.matrix.random_numbers import below, stream_key
from gnnloom.storage.sampling.induction import induce

#: Draws after which a vertex has no neighbor but itself: more are needed once in 2^256 times.
_MOST_DRAWS: Final = 256


@kernel(inline="always")
def num_neighbors(indptr: NDArray[np.int64], loop: NDArray[np.bool_], vertex: int) -> int:
    """Number of neighbors of a vertex other than itself."""
    # Not below 0, whatever ``loop`` says: samplers draw from a row that is not empty.
    return max(0, int(indptr[vertex + 1] - indptr[vertex] - loop[vertex]))


@kernel
def other_neighbor(
    key: np.uint64, counter: int, indptr: NDArray[np.int64], indices: NDArray[Any], vertex: int
) -> tuple[int, int]:
    """A uniform neighbor of a vertex that has one other than itself, and the next unused counter."""
    first = indptr[vertex]
    size = indptr[vertex + 1] - first
    # Drawn again if it is the vertex itself, which is at most every other time. In a graph whose loops are other than
    # ``loop`` says, it might be the only one.
    neighbor = vertex
    for _ in range(_MOST_DRAWS):
        neighbor = int(indices[first + below(key, counter, size)])
        counter += 1
        if neighbor != vertex:
            break
    return neighbor, counter


@dataclass(frozen=True)
class Block:
    """Rows of a sample, numbered within it.

    Attributes:
        matrix: (num_rows, num_columns) pattern or weights of the drawn nonzeros; columns ascend within a row.
        entry: (nnz,) int64 position of each nonzero in the graph's matrix.
        row_nnz: (num_rows,) int64 nonzeros of each row in the whole graph.
    """

    matrix: CSR
    entry: NDArray[np.int64]
    row_nnz: NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """A batch.

    Attributes:
        vertices: (num_vertices,) int64 vertices of the graph; their positions number them in the blocks. They ascend in
            an induced subgraph. In a layered sample, the seeds ascend, and so do the vertices that each layer adds.
        blocks: one square block for all layers, the induced subgraph; or one per layer, the first layer's block first.
            Block k then gathers ``vertices[:num_columns]`` into ``vertices[:num_rows]``, which are the columns of
            block k + 1; the rows of the last block are the seeds.
    """

    vertices: NDArray[np.int64]
    blocks: tuple[Block, ...]

    @property
    def num_seeds(self) -> int:
        """Leading vertices whose outputs are complete: the seeds, or all of an induced subgraph."""
        return self.blocks[-1].matrix.num_rows


@dataclass(frozen=True)
class Weights:
    """Weights of an induced subgraph that make its loss and its sums unbiased.

    Zeng et al. (GraphSAINT, ICLR 2020), section 3.2.

    Attributes:
        loss: (num_vertices,) float64 weights of the losses of the sample's vertices, 1 / (n p) for a vertex that a
            batch has with probability p (1 / lambda, over n): their weighted sum is, on average, the mean over all
            vertices.
        entry: (nnz,) float64 factors of the block's nonzeros: the probability that a batch has the row's vertex,
            divided by the probability that it has the nonzero (1 / alpha). On average over the batches with the row,
            the row's weighted sum equals the sum of the whole row.
    """

    loss: NDArray[np.float64]
    entry: NDArray[np.float64]


class Normalization(ABC):
    """Frequency of each vertex and each nonzero in batches. Methods may be called from any number of threads."""

    @abstractmethod
    def weights(self, sample: Sample) -> Weights:
        """The weights of one induced subgraph."""


class Sampler:
    """Draws the batches of a graph; any number of threads and processes may share the work.

    A sampler holds no state between batches: equal arguments give equal batches.
    """

    #: Name of the kind, which is part of the names of the random streams.
    kind: str

    def __init__(self, graph: WholeGraph, seed: int) -> None:
        self.graph, self.seed = graph, seed

    def _key(self, epoch: int, batch: int) -> np.uint64:
        """The random stream of a batch."""
        return stream_key(self.seed, f"{self.kind}/{epoch}/{batch}")


class SubgraphSampler(Sampler, ABC):
    """Draws vertices; a sample is the subgraph that they induce.

    Args:
        size: vertices to draw for a batch, at least 1. A vertex that is drawn twice counts twice, and is in the batch
            once.

    Raises:
        InputError: the size is below 1 or over 2^31 - 1, or the graph has no vertices.
    """

    def __init__(self, graph: WholeGraph, seed: int, size: int) -> None:
        super().__init__(graph, seed)
        if not 1 <= size <= INT32_WIDTH:
            raise InputError(f"sample of {size} vertices: expected 1 to 2^31 - 1")
        if not graph.num_vertices:
            raise InputError("a graph without vertices cannot be sampled")
        self.size = size

    @property
    def num_batches(self) -> int:
        """Batches per epoch."""
        return -(-self.graph.num_vertices // self.size)

    @abstractmethod
    def draw(self, epoch: int, batch: int) -> NDArray[np.int64]:
        """Draw the vertices of a batch, without the rows among them.

        Args:
            batch: from 0 on; a sampler that does not cover an epoch takes any number.

        Returns:
            (num_drawn,) int64, ascending.
        """

    def exact_normalization(self, *, symmetric: bool) -> Normalization | None:  # noqa: ARG002 - subclasses need it
        """The normalization from the probabilities of the draws; None if the probabilities are unknown.

        Args:
            symmetric: the graph's pattern equals its transpose.
        """
        return None

    def sample(self, epoch: int, batch: int) -> Sample:
        """Draw a batch with its rows."""
        vertices = self.draw(epoch, batch)
        local, entry, row_nnz = induce(self.graph.matrix, vertices)
        return Sample(vertices, (Block(local, entry, row_nnz),))
