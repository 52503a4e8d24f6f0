"""Finds how far a torch module looks: the edges that a batch needs so that its outputs equal the whole graph's.

A convolution reads the rows of its targets. One that normalizes by the degrees of both ends of an edge, such as PyG's
``GCNConv``, also reads the rows of the sources, which a batch of all neighbors lacks in its last hop. A module does not
declare what it reads, so trials find out: on a small graph, larger and larger batches until their outputs equal the
outputs on the whole graph. Batches follow edges backward, from targets to sources. A module that also follows them
forward, such as PyG's ``DirGNNConv``, gives these outputs on no batch of a directed graph; on an undirected graph,
every edge has its reverse, so one more hop is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnloom.storage.artifacts.whole_graph import WholeGraph, whole_graph
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.sampling.layered import whole_rows
from gnnloom.trainer.models.edge_modules import EDGE_WEIGHT
from gnnloom.trainer.models.networks.edge_model import BatchEdges, EdgeModel, layered_edges
from gnnloom.trainer.models.networks.module_model import evaluating
from gnnloom.trainer.place.place import Place

#: Hops to try beyond one per layer: for each layer, and in total; and hops to try for a single layer of a module that
#: offers its layers.
_MOST_FURTHER, _MOST_FURTHER_IN_ALL, _MOST_OF_LAYER = 12, 40, 4
#: Sizes of the trial graph: vertices at each distance from the first seeds, edges of the longest cycle through
#: these, leaves of the hub, more than any other vertex has neighbors, and isolated vertices.
_WIDTH, _CYCLE, _LEAVES, _ISOLATED = 3, 5, 16, 4
#: Number of random parameter sets to try: some may make all outputs zero, as after a ReLU.
_DRAWS: Final = 2
#: Isolated vertices have features of this size, others of at most 1: extremes over all vertices are outside batches.
_EXTREME: Final = 4.0


@dataclass(frozen=True)
class Reach:
    """The edges and rows that a module reads.

    Attributes:
        by_layer: the module offers its layers one by one; the other attributes then describe one layer.
        hops: the module reads rows of vertices at distance less than ``hops``.
        reads_degrees: the module reads the degrees of vertices at distance ``hops``.
        is_exact: with these rows, outputs equal the whole graph's outputs. Otherwise no tried number of hops gave equal
            outputs.
        widths: widths of the features, and of the outputs of each layer or of the module.
    """

    by_layer: bool
    hops: int
    reads_degrees: bool = False
    is_exact: bool = True
    widths: tuple[int, ...] = ()


@dataclass(frozen=True)
class GraphTraits:
    """Facts about the graph whose edges a module gets.

    Attributes:
        normalization: weights of the edges; see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.
        is_weighted: the graph has weights.
        is_symmetric: every edge has its reverse, with the same weight.
        has_loops: every vertex is a neighbor of itself.
        has_empty_rows: some vertices have no neighbors.
    """

    normalization: str
    is_weighted: bool
    is_symmetric: bool
    has_loops: bool
    has_empty_rows: bool


def find_reach(model: EdgeModel, traits: GraphTraits) -> Reach:
    """Find by trial which rows and edges a model's module reads. Communicates nothing; the same on every rank.

    The trial graph shares the known traits of the real graph, because a module may read more of some graphs.
    """
    graph = _trial_graph(_most_hops(model) + 2, traits)
    # Rounding in float32 would hide distant vertices. Some modules accept only float32.
    for place in (Place(torch.float64), model.place):
        try:
            return _tried(model, graph, traits, place)
        except Exception:  # noqa: BLE001, S112 - whatever the module raises; it may still take the real graph
            continue
    return replace(_unknown(model), widths=(model.options.dims[0], model.call.num_outputs))


def _tried(model: EdgeModel, graph: _TrialGraph, traits: GraphTraits, place: Place) -> Reach:
    """The widest reach with some random parameters, in the dtype of sums of ``place``."""
    width, generator, found = model.options.dims[0], torch.Generator().manual_seed(0), list[Reach]()
    feature = 2 * place.uniform((graph.whole.num_vertices, width), generator) - 1
    extreme = 1 + place.uniform((_ISOLATED // 2, width), generator)
    feature[place.from_numpy(graph.isolated)] = _EXTREME / 2 * torch.cat([extreme, -extreme])
    feature = feature.to(place.sum_dtype)
    trial = _Trial(model, graph, traits, place)
    for _ in range(_DRAWS):
        values = other_values(model.module, generator, place)
        with torch.no_grad(), place.creating_modules(), evaluating(model.module), values:
            found.append(trial.reach(feature))
        if not found[-1].is_exact:
            break
    return max(found, key=lambda reach: (not reach.is_exact, not reach.by_layer, reach.hops, reach.reads_degrees))


def whole_batch(
    graph: WholeGraph, seeds: NDArray[np.int64], reach: Reach, normalization: str, place: Place, *, weighs: bool
) -> tuple[NDArray[np.int64], BatchEdges]:
    """Everything a module reads for the outputs of some vertices: the vertices, seeds first, and the edges.

    Args:
        seeds: (num_seeds,) int64, ascending, at least one.
        normalization, weighs: see :func:`gnnloom.trainer.models.networks.edge_model.layered_edges`.
    """
    batch = whole_rows(graph, seeds, reach.hops)
    edges = layered_edges(batch, normalization, place, weighs=weighs)
    if not reach.reads_degrees:
        return batch.vertices, edges
    known = batch.blocks[0].num_rows
    loop = graph.loop[batch.vertices[known:]]
    return batch.vertices, _with_degrees(edges, known, batch.row_nnz[known:] - loop, loop, place)


def layer_output(model: EdgeModel, layer: int, feature: Tensor, edges: BatchEdges) -> Tensor:
    """(num_rows, width) output of one layer of a module that offers its layers one by one, as PyG's models do."""
    module: Any = model.module
    with _given_weight(module, layer, edges.weight if model.call.weighs else None):
        output: Tensor = module.inference_per_layer(layer, feature, edges.index, edges.num_rows)
    return output


@dataclass(frozen=True)
class _TrialGraph:
    """A small graph, and some of its vertices.

    Attributes:
        seeds: ascending sets of vertices whose outputs are computed. There are vertices at every distance from the
            first set.
        isolated: vertices without neighbors.
    """

    whole: WholeGraph
    seeds: tuple[NDArray[np.int64], ...]
    isolated: NDArray[np.int64]


class _Trial:
    """Batches of a small graph."""

    def __init__(self, model: EdgeModel, graph: _TrialGraph, traits: GraphTraits, place: Place) -> None:
        self._model, self._graph, self._traits, self._place = model, graph, traits, place
        # Given weights are already a normalization, or the graph's weights.
        self._completes = model.call.weighs and not traits.is_weighted and traits.normalization == "none"

    def reach(self, feature: Tensor) -> Reach:
        """Find what the module reads with its current parameters."""
        model = self._model
        whole = self.edges(np.arange(self._graph.whole.num_vertices), Reach(by_layer=False, hops=1))[1]
        expected = model.call(model.module, feature, replace(whole, hops=None), self._place)
        inputs = _inputs_by_layer(model, feature, whole, expected)
        found = None if inputs is None else self.by_layer(inputs)
        if inputs is not None and found is not None:
            return replace(found, widths=tuple(value.shape[1] for value in inputs))
        return replace(self.at_once(feature, expected), widths=(feature.shape[1], expected.shape[1]))

    def edges(self, seeds: NDArray[np.int64], reach: Reach) -> tuple[NDArray[np.int64], BatchEdges]:
        normalization, weighs = self._traits.normalization, self._model.call.weighs
        return whole_batch(self._graph.whole, seeds, reach, normalization, self._place, weighs=weighs)

    def by_layer(self, inputs: list[Tensor]) -> Reach | None:
        """Find what one layer reads, for every layer alike; None if the layer reads more than is tried."""

        def suffices(seeds: NDArray[np.int64], reach: Reach) -> bool:
            vertices, edges = self.edges(seeds, reach)
            at = self._place.from_numpy(vertices)
            return all(
                alike(layer_output(self._model, layer, value[at], edges), expected[at[: len(seeds)]])
                for layer, (value, expected) in enumerate(pairwise(inputs))
            )

        return self._first(self._candidates(1, _MOST_OF_LAYER, by_layer=True), suffices, inputs[-1])

    def at_once(self, feature: Tensor, expected: Tensor) -> Reach:
        """Find what all layers together read."""
        model = self._model

        def suffices(seeds: NDArray[np.int64], reach: Reach) -> bool:
            vertices, edges = self.edges(seeds, reach)
            at = self._place.from_numpy(vertices)
            output = model.call(model.module, feature[at], replace(edges, hops=None), self._place)
            return alike(output, expected[at[: len(seeds)]])

        candidates = self._candidates(model.num_layers, _most_hops(model), by_layer=False)
        return self._first(candidates, suffices, expected) or _unknown(model)

    def _first(
        self, candidates: Iterator[Reach], suffices: Callable[[NDArray[np.int64], Reach], bool], expected: Tensor
    ) -> Reach | None:
        """The first candidate that suffices for all seeds, and with further rows as well.

        An operation on all vertices, such as pooling, may give the same outputs for some batch by chance.
        """
        first, *others = self._graph.seeds
        # Missing neighbors of such vertices would not be noticed.
        if not expected[self._place.from_numpy(first)].isfinite().all():
            return None
        for reach in candidates:
            cases = [(first, reach), (first, replace(reach, hops=reach.hops + 1)), *((each, reach) for each in others)]
            try:
                if all(suffices(*case) for case in cases):
                    return reach
            except Exception:  # noqa: BLE001, S112 - whatever the module raises for too few rows
                continue
        return None

    def _candidates(self, least: int, most: int, *, by_layer: bool) -> Iterator[Reach]:
        yield Reach(by_layer, least)
        if self._completes:
            yield Reach(by_layer, least, reads_degrees=True)
        for hops in range(least + 1, most + 1):
            yield Reach(by_layer, hops)


def _most_hops(model: EdgeModel) -> int:
    return model.num_layers + min(_MOST_FURTHER * model.num_layers, _MOST_FURTHER_IN_ALL)


def _unknown(model: EdgeModel) -> Reach:
    """No number of hops is known to be enough."""
    return Reach(by_layer=False, hops=model.num_layers, is_exact=False)


def _inputs_by_layer(model: EdgeModel, feature: Tensor, whole: BatchEdges, expected: Tensor) -> list[Tensor] | None:
    """The input of every layer, and the output of the last one; None if the module does not offer its layers."""
    module: Any = model.module
    if not callable(getattr(module, "inference_per_layer", None)) or not isinstance(module.num_layers, int):
        return None
    values = [feature]
    try:
        for layer in range(module.num_layers):
            values.append(layer_output(model, layer, values[-1], whole))
    # The module is then called as a whole, which has no such failure.
    except Exception:  # noqa: BLE001
        return None
    # This does not hold if the outputs join the outputs of several layers, as with jumping knowledge.
    return values if alike(values[-1], expected) else None


def _trial_graph(depth: int, traits: GraphTraits) -> _TrialGraph:
    """Vertices at every distance up to ``depth`` from the first seeds, and vertices that the seeds never reach.

    The parts of the graph are not connected: levels with cycles of each length, a hub and its leaves, and isolated
    vertices. The numbers of vertices are independent of their places.
    """
    # In a symmetric graph, every edge is a cycle, and longer ones come from edges within a level.
    parts = [(0, False), *((back, True) for back in range(1 if traits.is_symmetric else _CYCLE))]
    size = depth * (_WIDTH + 2)
    levels = [(number * size + np.arange(size)).reshape(depth, _WIDTH + 2) for number in range(len(parts))]
    into, out_of, *others = range(len(parts) * size, len(parts) * size + 2 + _LEAVES + _ISOLATED)
    leaves, isolated = others[:_LEAVES], np.array(others[_LEAVES:])
    edges = [edge for leaf in leaves for edge in ((out_of, leaf), (leaf, into))]
    for level, (back, within) in zip(levels, parts, strict=True):
        edges += _level_edges(level, back, within=within)
    count = len(parts) * size + 2 + _LEAVES + _ISOLATED
    has_row = np.isin(np.arange(count), [target for _, target in edges])
    edges += [
        (each, each)
        for each in range(count)
        if traits.has_loops or (each % 2 if has_row[each] else not traits.has_empty_rows)
    ]
    pairs = np.array(edges).T
    pairs = np.unique(np.concatenate([pairs, pairs[::-1]], 1) if traits.is_symmetric else pairs, axis=1)
    ends = np.sort(pairs, axis=0) if traits.is_symmetric else pairs
    rng = np.random.default_rng(0)
    numbers = rng.permutation(count)
    column, row = numbers[pairs]
    order = np.lexsort((column, row))
    data = (0.5 + (5 * ends[0] + 3 * ends[1]) % 7 / 5)[order] if traits.is_weighted else None
    indptr = np.searchsorted(row[order], np.arange(count + 1))
    matrix = CSR(0, indptr, column[order].astype(np.int32), data, count)
    # One vertex of each kind, and some of any.
    mixed = [*levels[-1][depth // 2], into, out_of, leaves[0], isolated[0]]
    some = rng.choice(count, count // 3, replace=False)
    firsts = np.stack([level[0, :_WIDTH] for level in levels])
    seeds = tuple(np.sort(numbers[each]) for each in (firsts.ravel(), some, mixed, firsts[:, 0], *firsts))
    return _TrialGraph(whole_graph(matrix), seeds, numbers[isolated])


def _level_edges(level: NDArray[np.int64], back: int, *, within: bool) -> list[tuple[int, int]]:
    """Edges (source, target) to every level from the next one, from a source, and to a sink.

    Args:
        level: (depth, _WIDTH + 2); a source and a sink are the last two of each level.
        back: an edge leads to every vertex from the vertex ``back`` levels before, which closes a cycle; 0 for no such
            edge.
        within: there are edges between the vertices of every other level.
    """
    edges = list[tuple[int, int]]()
    for distance, (*here, source, sink) in enumerate(level.tolist()):
        edges += [(source, here[0]), (here[1], sink), (here[2], sink)]
        if distance % 2:
            edges.append((level[distance - 1, -1], sink))
        for at, vertex in enumerate(here):
            further = level[distance + 1 : distance + 2, np.arange(at, at + 2 + (at == 0)) % _WIDTH]
            edges += [(each, vertex) for each in further.ravel().tolist()]
            if within and (distance + at) % 2:
                edges.append((here[(at + 1) % _WIDTH], vertex))
            if 0 < back <= distance:
                edges.append((level[distance - back, at], vertex))
    return edges


def _with_degrees(
    edges: BatchEdges, known: int, missing: NDArray[np.int64], loop: NDArray[np.bool_], place: Place
) -> BatchEdges:
    """The edges, and one to each vertex whose row is unknown, with the weight of all other entries of its row.

    These edges lead only to vertices whose outputs are not requested.

    Args:
        known: vertices whose rows the edges have.
        missing: (num_others,) int64 entries of the rows of the others, without loops.
        loop: (num_others,) bool, whether they have loops.
    """
    others = known + np.arange(len(missing))
    some, loops = others[missing > 0], others[loop]
    added = np.stack([np.concatenate([np.zeros_like(some), loops]), np.concatenate([some, loops])])
    weight = np.concatenate([np.ones(edges.index.shape[1]), missing[missing > 0], np.ones(len(loops))])
    index = torch.cat([edges.index, place.from_numpy(added)], 1)
    return BatchEdges(index, place.from_numpy(weight).to(place.sum_dtype), edges.num_rows)


@contextmanager
def _given_weight(module: Any, layer: int, weight: Tensor | None) -> Iterator[None]:
    """Inside the block, the convolution of a layer is called with weights of edges; ``inference_per_layer`` has none.

    Raises:
        AttributeError, IndexError: the module does not hold its convolutions as PyG's models do.
    """
    if weight is None:
        yield
        return

    def add(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, {**given, EDGE_WEIGHT: weight}

    handle = module.convs[layer].register_forward_pre_hook(add, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def other_values(module: nn.Module, generator: torch.Generator, place: Place) -> Iterator[None]:
    """Inside the block, parameters have random values: some present values may be zero and hide their factors.

    Parameters and buffers have the dtype of sums of ``place``. Changes inside the block are undone.
    """
    parameters = list(module.parameters())
    buffers = [each for each in module.buffers() if each.is_floating_point()]
    before = [(each, each.data) for each in [*parameters, *buffers]]
    for buffer in buffers:
        buffer.data = buffer.data.to(place.sum_dtype, copy=True)
    for parameter in parameters:
        shape = parameter.shape
        scale = max(1, shape[-1] if shape else 1) ** -0.5
        parameter.data = ((2 * place.uniform(shape, generator) - 1) * 2 * scale).to(place.sum_dtype)
    try:
        yield
    finally:
        for each, value in before:
            each.data = value


def alike(one: Tensor, other: Tensor) -> bool:
    """Whether two results differ by rounding only."""
    tolerance = torch.finfo(one.dtype).eps ** (2 / 3)
    finite = other[other.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    return one.shape == other.shape and torch.allclose(
        one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True
    )
