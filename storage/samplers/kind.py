"""The descriptor of a sampler of subgraphs, apart from the code that draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gnnloom.storage.descriptors import LazyClass
from gnnloom.storage.option import Option

#: Kinds of batches that a stochastic partition can be made for.
BATCHES: Final = ("vertex", "edge", "walk", "frontier")
#: How often a vertex should be counted on average before counts give weights, and the most batches drawn to reach this.
SUFFICIENT: Final = 50
MOST_COUNTED: Final = 100_000


def whole_rows(rows: float, num_vertices: int, nnz: int) -> tuple[float, float]:
    """Vertices of a subgraph, and an upper bound of the nonzeros: the mean length of their whole rows."""
    rows = float(min(rows, num_vertices))
    return rows, min(rows * rows, rows * nnz / max(1, num_vertices))


def _of_batch_size(options: Mapping[str, Any], num_vertices: int, nnz: int) -> tuple[float, float]:
    return whole_rows(options["batch_size"], num_vertices, nnz)


@dataclass(frozen=True, kw_only=True)
class SamplerKind(LazyClass):
    """The descriptor of a sampler of subgraphs.

    Attributes:
        name: name on the command line.
        order: position among the choices; equal ones are sorted by name.
        help: what it draws, as the end of a sentence.
        source: paper and section.
        covers_epoch: whether the batches of one epoch contain every vertex.
        place: module and class, a :class:`gnnloom.storage.sampling.sampler.SubgraphSampler`.
        draws_parts: it draws parts of a partition; its class takes them as ``parts``, and no ``size``.
        options: the sampler's own options by name. Samplers that share a name share the option.
        arguments: the argument of the class for each option that has another name; empty if the class takes none.
        sizes: vertices and nonzeros of a subgraph for the forecast of memory, from the options of the mode, its own
            among them, and the vertices and nonzeros of the graph.
    """

    name: str
    order: int = 100
    help: str
    source: str
    covers_epoch: bool
    draws_parts: bool = False
    options: Mapping[str, Option] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    sizes: Callable[[Mapping[str, Any], int, int], tuple[float, float]] = _of_batch_size
