"""The kinds of samplers, apart from the code that draws, which imports numba: that takes half a second."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gnnloom.storage.sampling.sampler import Sampler

#: Kinds of batches that a stochastic partition can be made for.
BATCHES: Final = ("vertex", "edge", "walk", "frontier")
#: How often a vertex should be counted on average before counts give weights, and the most batches drawn to reach this.
SUFFICIENT: Final = 50
MOST_COUNTED: Final = 100_000


def whole_rows(rows: float, num_vertices: int, nnz: int) -> tuple[float, float]:
    """Vertices of a subgraph, and as many nonzeros as their whole rows have on average, at most."""
    rows = min(rows, num_vertices)
    return rows, min(rows * rows, rows * nnz / max(1, num_vertices))


def _uniform(config: Any, num_vertices: int, nnz: int) -> tuple[float, float]:
    rows = float(min(config.batch_size, num_vertices))
    return rows, nnz * (rows / max(1, num_vertices)) ** 2 + rows


def _clusters(config: Any, num_vertices: int, nnz: int) -> tuple[float, float]:
    # A partition that a recipe has yet to make: the size of its parts is not known.
    parts = config.cluster_parts
    return whole_rows(-(-num_vertices * config.parts_per_batch // parts) if parts else num_vertices, num_vertices, nnz)


@dataclass(frozen=True)
class SamplerKind:
    """The descriptor of a sampler.

    Attributes:
        name: name on the command line.
        help: what it draws, as the end of a sentence.
        source: paper and section.
        covers_epoch: whether the batches of one epoch contain every vertex (``neighbor``: every seed).
        layered: whether a sample has one block per layer instead of one for all layers.
        place: module and class.
        sizes: vertices and nonzeros of a subgraph, from the configuration and the vertices and nonzeros of the graph.
    """

    name: str
    help: str
    source: str
    covers_epoch: bool
    layered: bool
    place: tuple[str, str]
    sizes: Callable[[Any, int, int], tuple[float, float]] = lambda config, n, nnz: whole_rows(config.batch_size, n, nnz)

    def load(self) -> type[Sampler]:
        """Import the class."""
        found: type[Sampler] = getattr(importlib.import_module(self.place[0]), self.place[1])
        return found


_KINDS = (
    SamplerKind(
        name="frontier",
        help="vertices popped from a frontier by degree, and their successors",
        source="Zeng et al., IPDPS 2019, section IV",
        covers_epoch=False,
        layered=False,
        place=("gnnloom.storage.sampling.frontier", "FrontierSampler"),
    ),
    SamplerKind(
        name="vertex",
        help="uniform vertices; those of one epoch are all different",
        source="Zeng et al., ICLR 2020, section 3.4, with equal probabilities",
        covers_epoch=True,
        layered=False,
        place=("gnnloom.storage.sampling.vertex", "VertexSampler"),
        sizes=_uniform,
    ),
    SamplerKind(
        name="edge",
        help="both ends of edges, more often those of vertices with few edges",
        source="Zeng et al., ICLR 2020, section 3.4",
        covers_epoch=False,
        layered=False,
        place=("gnnloom.storage.sampling.edge", "EdgeSampler"),
    ),
    SamplerKind(
        name="walk",
        help="vertices that random walks from uniform roots visit",
        source="Zeng et al., ICLR 2020, section 3.4",
        covers_epoch=False,
        layered=False,
        place=("gnnloom.storage.sampling.walk", "WalkSampler"),
    ),
    SamplerKind(
        name="cluster",
        help="whole parts of a partition, several per batch",
        source="Chiang et al., KDD 2019, section 3.2",
        covers_epoch=True,
        layered=False,
        place=("gnnloom.storage.sampling.cluster", "ClusterSampler"),
        sizes=_clusters,
    ),
    SamplerKind(
        name="neighbor",
        help="some neighbors of each vertex, layer by layer, from seeds on",
        source="Hamilton, Ying, Leskovec, NeurIPS 2017, appendix A",
        covers_epoch=True,
        layered=True,
        place=("gnnloom.storage.sampling.neighbor", "NeighborSampler"),
    ),
)

#: All samplers by name.
SAMPLERS: Final[Mapping[str, SamplerKind]] = MappingProxyType({kind.name: kind for kind in _KINDS})
