"""Edges of generated graphs that partition differently, as (num_edges, 2) arrays; the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Edges = NDArray[np.int64]


def generated(*, small: bool = False) -> dict[str, Edges]:
    """Return a graph of each kind: meshes, a web graph, and graphs without clusters or with groups only."""
    rng, shrink = np.random.default_rng(0), 4 if small else 1
    side = 200 // shrink
    return {
        "mesh": lattice(side, rng),
        "small-world": lattice(3 * side // 4, rng, shortcuts=0.1),
        "web": web(30_000 // shrink**2, rng),
        "rmat": rmat(12 if small else 14, 8, rng),
        "sbm": groups(16_000 // shrink**2, 160_000 // shrink**2, 64, 0.3, rng),
    }


def lattice(side: int, rng: np.random.Generator, shortcuts: float = 0.0) -> Edges:
    """Return a square lattice with scrambled ids, and random edges as a share of its vertices."""
    vertex = rng.permutation(side * side).reshape(side, side)
    right = np.stack([vertex[:, :-1].ravel(), vertex[:, 1:].ravel()], axis=1)
    down = np.stack([vertex[:-1].ravel(), vertex[1:].ravel()], axis=1)
    return np.concatenate([right, down, rng.integers(0, side * side, (int(shortcuts * side * side), 2))])


def web(num_pages: int, rng: np.random.Generator) -> Edges:
    """Return pages in the order of their addresses: most links stay near, or lead to the front pages of the host.

    Hosts have sizes of a power law, and pages a log-normal number of links.
    """
    sizes = np.minimum(num_pages // 10, np.ceil(10 * rng.pareto(1.1, num_pages)).astype(np.int64) + 1)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), num_pages)) + 1]
    first = np.concatenate([[0], np.cumsum(sizes)])
    host = np.repeat(np.arange(len(sizes)), sizes)
    links = np.minimum(200, rng.lognormal(np.log(7) - 0.5, 1, len(host)).astype(np.int64) + 1)
    page = np.repeat(np.arange(len(host)), links)
    start, size = first[host[page]], sizes[host[page]]
    near = start + (page + np.rint(rng.laplace(0, 6, len(page))).astype(np.int64) - start) % size
    # The logarithm of a rank is uniform: a few pages of a host, and a few hosts, get most links.
    front = start + (size ** rng.random(len(page))).astype(np.int64) - 1
    far = first[rng.permutation(len(sizes))[(len(sizes) ** rng.random(len(page))).astype(np.int64) - 1]]
    kind = rng.random(len(page))
    return np.stack([page, np.where(kind < 0.6, near, np.where(kind < 0.88, front, far))], axis=1)


def rmat(scale: int, edge_factor: int, rng: np.random.Generator) -> Edges:
    """Return Graph500's Kronecker graph with scrambled ids: long rows and no clusters."""
    ends = np.zeros((2, edge_factor << scale), dtype=np.int64)
    for _ in range(scale):
        drawn = rng.random(ends.shape[1])
        ends[0] = 2 * ends[0] + (drawn >= 0.76)
        ends[1] = 2 * ends[1] + (((drawn >= 0.57) & (drawn < 0.76)) | (drawn >= 0.95))
    return rng.permutation(1 << scale)[ends.T]


def groups(num_vertices: int, num_edges: int, num_groups: int, noise: float, rng: np.random.Generator) -> Edges:
    """Return a stochastic block model: a share of ``noise`` of the edges leave their group."""
    group = np.sort(rng.integers(0, num_groups, num_vertices))
    first = np.searchsorted(group, np.arange(num_groups + 1))
    scrambled = rng.permutation(num_vertices)
    source = rng.integers(0, num_vertices, num_edges)
    size = (first[group + 1] - first[group])[source]
    inside = first[group[source]] + (rng.random(num_edges) * size).astype(np.int64)
    target = np.where(rng.random(num_edges) < noise, rng.integers(0, num_vertices, num_edges), inside)
    edges: Edges = scrambled[np.stack([source, target], axis=1)]
    return edges


@dataclass(frozen=True)
class StandIn:
    """A generated graph of the average degree and the kind of a public one, and smaller.

    Attributes:
        name, vertices, edges: of the public graph, as SNAP or SuiteSparse publish it, each pair of vertices once.
        kind: ``lattice`` with missing edges, ``groups``, or ``rmat``, whose rows are as skewed as Graph500's.
        noise: share of the edges that leave their group.
    """

    name: str
    vertices: int
    edges: int
    kind: str
    noise: float = 0.0

    def generate(self, shrink: int) -> Edges:
        """Return edges of a graph with a share 1 / shrink of the vertices, each pair once or more."""
        rng, num_vertices, num_edges = np.random.default_rng(0), self.vertices // shrink, self.edges // shrink
        if self.kind == "lattice":
            found = lattice(round(num_vertices**0.5), rng)
            return found[rng.random(len(found)) < num_edges / len(found)]
        if self.kind == "groups":
            return groups(num_vertices, num_edges, max(1, num_vertices // _GROUP), self.noise, rng)
        scale = round(np.log2(num_vertices))
        return rmat(scale, max(1, round(num_edges / 2**scale)), rng)


#: Vertices of a group of a stand-in, on average.
_GROUP = 64
#: For a road network, two of products bought together, citations, co-authors, and two of acquaintances.
STAND_INS = (
    StandIn("roadNet-CA", 1_965_206, 2_766_607, "lattice"),
    StandIn("com-Amazon", 334_863, 925_872, "groups", 0.1),
    StandIn("amazon0601", 403_394, 2_443_408, "groups", 0.2),
    StandIn("cit-Patents", 3_774_768, 16_518_947, "groups", 0.4),
    StandIn("coPapersDBLP", 540_486, 15_245_729, "groups", 0.02),
    StandIn("com-Youtube", 1_134_890, 2_987_624, "rmat"),
    StandIn("flickr", 820_878, 6_625_280, "rmat"),
)
