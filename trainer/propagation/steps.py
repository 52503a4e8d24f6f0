"""Steps of a propagation: powers of the adjacency, or personalized PageRank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Propagation:
    """Method and number of steps of a propagation.

    Attributes:
        steps: number of products.
        normalization: normalization of the adjacency.
        teleport: probability of personalized PageRank, for which only the last step is stored; None for powers, which
            are all stored.
    """

    steps: int
    normalization: str
    teleport: float | None = None

    @property
    def stored(self) -> tuple[int, ...]:
        """The steps that are stored."""
        steps = tuple(range(1, self.steps + 1))
        return steps if self.teleport is None else steps[-1:]

    @property
    def matrices(self) -> int:
        """Number of dense matrices in memory at a time."""
        return 2 if self.teleport is None else 3
