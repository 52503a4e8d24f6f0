"""How much of a graph's matrices the busiest rank of an algorithm holds, for planning a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """One rank's shares in one layer, each of the whole: n rows of the layer's width, or the nonzeros.

    Attributes:
        rows: rows of the layer's input, whatever their columns.
        held: entries of the layer's input.
        product: entries of its product with the adjacency, before it is summed over ranks.
        received: entries that arrive at a time for a product, in addition to those held.
        adjacency: nonzeros of the matrix that the layer multiplies with.
        arriving: nonzeros that arrive at a time for a product.
        pointers: row pointers of that matrix, as a multiple of n; every block of columns has its own.
        window: names of the axes that split the rows and columns of that matrix, if these change from layer to layer.
        received_bytes: that may arrive at a time where the share that arrives takes less.
    """

    rows: float
    held: float
    product: float
    received: float
    adjacency: float
    pointers: float
    arriving: float = 0.0
    window: tuple[str, ...] = ()
    received_bytes: int = 0

    def arriving_bytes(self, whole: float) -> float:
        """Bytes that arrive at a time, at most, for a product with a dense matrix of ``whole`` bytes."""
        return max(self.received * whole, min(self.received_bytes, whole))


def unchanging(num_layers: int, footprint: Footprint) -> list[Footprint]:
    """The footprints of all layers, and of the output, if they are the same in each."""
    return [footprint] * (num_layers + 1)
