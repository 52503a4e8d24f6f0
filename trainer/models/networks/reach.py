"""How far a module of torch looks: which edges a batch must have so that its outputs are those of the whole graph.

A convolution reads the rows of its targets. One that normalizes by the degrees of both ends of an edge, such as PyG's
``GCNConv``, also reads the rows of the sources, which a batch of all neighbors lacks in its last hop. What a module
reads cannot be asked for, so it is tried: on a small graph, larger and larger batches, until the outputs equal those
of the whole graph.
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
from gnnloom.storage.samplers.kind import ALL
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.trainer.models.edge_modules import EDGE_WEIGHT
from gnnloom.trainer.models.networks.edge_model import BatchEdges, EdgeModel, layered_edges
from gnnloom.trainer.place.place import Place

#: Hops beyond its layers that a module is tried with, and those of a single layer.
_MOST_FURTHER, _MOST_OF_LAYER = 12, 4
#: Vertices at each distance from the seeds in the graph that it is tried on.
_WIDTH: Final = 3


@dataclass(frozen=True)
class Reach:
    """What a module reads.

    Attributes:
        by_layer: it offers its layers one by one; the other attributes then are about one layer.
        hops: the rows of vertices at fewer than so many hops from the targets.
        reads_degrees: of the vertices at that distance, the degrees.
        is_exact: with these rows, outputs are those of the whole graph. Otherwise no number of hops gave those.
        widths: of the features, and of the outputs of each layer, or of the module.
    """

    by_layer: bool
    hops: int
    reads_degrees: bool = False
    is_exact: bool = True
    widths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Weighing:
    """Where weights of edges come from.

    Attributes:
        normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.
        is_weighted: the graph has weights.
    """

    normalization: str
    is_weighted: bool

    @property
    def gives(self) -> bool:
        """A module that takes weights is given some."""
        return self.is_weighted or self.normalization != "none"


def find_reach(model: EdgeModel, weighing: Weighing) -> Reach:
    """Try what the module of a model reads. Communicates nothing; the same on every rank."""
    depth = model.num_layers + _MOST_FURTHER
    graph = _layers_of_vertices(depth + 2, weighted=weighing.is_weighted)
    place = model.place
    generator = torch.Generator().manual_seed(0)
    feature = (2 * place.uniform((graph.num_vertices, model.options.dims[0]), generator) - 1).to(model.dtype)
    trial = _Trial(model, graph, weighing, place)
    with torch.no_grad(), _evaluating(model.module), _other_values(model.module, generator, place):
        whole = trial.edges(np.arange(graph.num_vertices), Reach(by_layer=False, hops=1))[1]
        expected = model.call(model.module, feature, replace(whole, hops=None), place)
        inputs = _inputs_by_layer(model, feature, whole, expected)
        found = None if inputs is None else trial.by_layer(inputs)
        if inputs is not None and found is not None:
            return replace(found, widths=tuple(value.shape[1] for value in inputs))
        return replace(trial.at_once(feature, expected, depth), widths=(feature.shape[1], expected.shape[1]))


def whole_batch(
    graph: WholeGraph, seeds: NDArray[np.int64], reach: Reach, model: EdgeModel, normalization: str
) -> tuple[NDArray[np.int64], BatchEdges]:
    """All that a module reads to compute the outputs of some vertices: the vertices, the seeds first, and the edges.

    Args:
        seeds: (num_seeds,) int64, ascending, at least one.
    """
    sampler = NeighborSampler(graph, 0, seeds, [ALL] * reach.hops, len(seeds), draw_once=True)
    batch = layered_batch(graph, sampler.sample_of(seeds, 0, 0))
    edges = layered_edges(batch, normalization, model.place, weighs=model.call.weighs)
    if not reach.reads_degrees:
        return batch.vertices, edges
    known = batch.blocks[0].num_rows
    loop = graph.loop[batch.vertices[known:]]
    return batch.vertices, _with_degrees(edges, known, batch.row_nnz[known:] - loop, loop, model)


def layer_output(model: EdgeModel, layer: int, feature: Tensor, edges: BatchEdges) -> Tensor:
    """(num_rows, width) output of one layer of a module that offers its layers one by one, as PyG's models do."""
    module: Any = model.module
    with _given_weight(module, layer, edges.weight if model.call.weighs else None):
        output: Tensor = module.inference_per_layer(layer, feature, edges.index, edges.num_rows)
    return output


class _Trial:
    """Batches of a small graph."""

    def __init__(self, model: EdgeModel, graph: WholeGraph, weighing: Weighing, place: Place) -> None:
        self._model, self._graph, self._weighing, self._place = model, graph, weighing, place
        # Given weights are a normalization already, or those of the graph.
        self._completes = model.call.weighs and not weighing.gives
        self._seeds = np.arange(_WIDTH)

    def edges(self, seeds: NDArray[np.int64], reach: Reach) -> tuple[NDArray[np.int64], BatchEdges]:
        return whole_batch(self._graph, seeds, reach, self._model, self._weighing.normalization)

    def by_layer(self, inputs: list[Tensor]) -> Reach | None:
        """What one layer reads, of any; None if more than is tried."""

        def suffices(seeds: NDArray[np.int64], reach: Reach) -> bool:
            vertices, edges = self.edges(seeds, reach)
            at = self._place.from_numpy(vertices)
            outputs = [
                (layer_output(self._model, layer, value[at], edges), expected[: len(seeds)])
                for layer, (value, expected) in enumerate(pairwise(inputs))
            ]
            return all(_alike(*pair) for pair in outputs)

        return self._first(self._candidates(1, _MOST_OF_LAYER, by_layer=True), suffices)

    def at_once(self, feature: Tensor, expected: Tensor, most: int) -> Reach:
        """What all layers together read."""
        model, num_layers = self._model, self._model.num_layers

        def suffices(seeds: NDArray[np.int64], reach: Reach) -> bool:
            vertices, edges = self.edges(seeds, reach)
            rows = feature[self._place.from_numpy(vertices)]
            output = model.call(model.module, rows, replace(edges, hops=None), self._place)
            return _alike(output, expected[: len(seeds)])

        found = self._first(self._candidates(num_layers, most, by_layer=False), suffices)
        return found or Reach(by_layer=False, hops=num_layers, is_exact=False)

    def _first(self, candidates: Iterator[Reach], suffices: Callable[[NDArray[np.int64], Reach], bool]) -> Reach | None:
        """The first candidate that suffices, for other seeds and with further rows as well.

        What looks at all vertices, such as pooling, may give the same outputs for some batch by chance.
        """
        for reach in candidates:
            further = replace(reach, hops=reach.hops + 1)
            if all(
                suffices(*case) for case in ((self._seeds, reach), (self._seeds[:1], reach), (self._seeds, further))
            ):
                return reach
        return None

    def _candidates(self, least: int, most: int, *, by_layer: bool) -> Iterator[Reach]:
        yield Reach(by_layer, least)
        if self._completes:
            yield Reach(by_layer, least, reads_degrees=True)
        for hops in range(least + 1, most + 1):
            yield Reach(by_layer, hops)


def _inputs_by_layer(model: EdgeModel, feature: Tensor, whole: BatchEdges, expected: Tensor) -> list[Tensor] | None:
    """The input of every layer, and the output of the last one; None if the module does not offer its layers."""
    module: Any = model.module
    if not callable(getattr(module, "inference_per_layer", None)) or not isinstance(module.num_layers, int):
        return None
    values = [feature]
    try:
        for layer in range(module.num_layers):
            values.append(layer_output(model, layer, values[-1], whole))
    # The module is called as a whole then, which has no such failure.
    except Exception:  # noqa: BLE001
        return None
    # Not so if its outputs join those of several layers, as with jumping knowledge.
    return values if _alike(values[-1], expected) else None


def _layers_of_vertices(depth: int, *, weighted: bool) -> WholeGraph:
    """A graph of vertices at every distance up to ``depth`` from the first ones; half of the vertices have loops."""
    rows = list[list[int]]()
    for distance in range(depth):
        for place in range(_WIDTH):
            further = [(distance + 1) * _WIDTH + each % _WIDTH for each in range(place, place + 2 + (place == 0))]
            row = [] if distance + 1 == depth else further
            row += [(distance - 1) * _WIDTH + place] if distance else []
            row += [distance * _WIDTH + place] if (distance + place) % 2 else []
            rows.append(sorted(row))
    indptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    data = 0.5 + np.arange(indptr[-1]) % 7 / 5 if weighted else None
    return whole_graph(CSR(0, indptr, np.concatenate(rows).astype(np.int32), data, len(rows)))


def _with_degrees(
    edges: BatchEdges, known: int, missing: NDArray[np.int64], loop: NDArray[np.bool_], model: EdgeModel
) -> BatchEdges:
    """The edges, and one to each vertex whose row is unknown, with the weight of all other entries of its row.

    Only outputs that are not asked for have these edges among their own.

    Args:
        known: vertices whose rows the edges have.
        missing: (num_others,) int64 entries of the rows of the others, without loops.
        loop: (num_others,) bool, whether they have loops.
    """
    place = model.place
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
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Inside the block, the module is in evaluation mode."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


@contextmanager
def _other_values(module: nn.Module, generator: torch.Generator, place: Place) -> Iterator[None]:
    """Inside the block, parameters have random values: as they are, some may be zero and hide what they multiply."""
    parameters = list(module.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    for parameter in parameters:
        shape = parameter.shape
        scale = max(1, shape[-1] if shape else 1) ** -0.5
        parameter.copy_((2 * place.uniform(shape, generator) - 1) * 2 * scale)
    try:
        yield
    finally:
        for parameter, value in zip(parameters, before, strict=True):
            parameter.copy_(value)


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether two results differ by rounding only."""
    tolerance = torch.finfo(one.dtype).eps ** 0.5
    scale = float(other.abs().max()) if other.numel() else 0.0
    return one.shape == other.shape and torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale)
