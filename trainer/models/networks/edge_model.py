"""Runs torch modules that take ``(x, edge_index[, edge_weight])``, as PyG's models do, on the edges of batches."""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.wording import counted
from gnnloom.trainer.kernels.dispatch import performed, with_values
from gnnloom.trainer.loader.hops import edge_index, edge_weight, hops_of, scaled_entries
from gnnloom.trainer.models.edge_modules import EDGE_WEIGHT, HOPS, forward_names, takes_weights
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.module_model import ModuleModel, checked_output, evaluating
from gnnloom.trainer.operators.layered import LayeredOperator
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.operators.p2p import SampledRows
from gnnloom.trainer.place.place import Place

#: Vertices of the graph on which a new module is tried.
_TRIED: Final = 6


@dataclass(frozen=True)
class BatchEdges:
    """The edges of a batch.

    Attributes:
        index: (2, num_edges) int64 sources and targets, by position in the batch.
        weight: (num_edges,) weights of the dtype of sums; None if all are 1.
        num_rows: leading vertices whose outputs are wanted.
        hops: number of vertices and of edges that each hop adds; None if the batch has no hops.
    """

    index: Tensor
    weight: Tensor | None
    num_rows: int
    hops: tuple[list[int], list[int]] | None = None


@dataclass(frozen=True)
class EdgeCall:
    """Calls a module.

    Attributes:
        weighs: pass the weights of edges.
        trims: pass the numbers of vertices and edges of the hops, so that each layer computes only the rows it needs.
        num_outputs: columns of its result.
    """

    name: str
    weighs: bool
    trims: bool
    num_outputs: int

    def __call__(self, module: nn.Module, feature: Tensor, edges: BatchEdges, place: Place) -> Tensor:
        """(num_rows, num_outputs) result for the leading vertices, of the dtype of sums.

        Raises:
            InputError: the module does not return a row for each vertex.
        """
        given: dict[str, Any] = {}
        if self.weighs and edges.weight is not None:
            given[EDGE_WEIGHT] = edges.weight
        if self.trims and edges.hops is not None:
            given |= dict(zip(HOPS, edges.hops, strict=True))
        try:
            output = module(feature, edges.index, **given)
        # Some aggregations, such as a median, fail without edges.
        except (RuntimeError, IndexError) as error:
            if edges.index.shape[1]:
                raise
            if module.training:
                raise InputError(
                    f"model {self.name}: its forward fails on a batch without edges: {error}; take larger batches"
                    " (--batch-size), or an aggregation of no edges (--model-options aggr=mean)"
                ) from error
            output = self._beside_a_loop(module, feature, edges, place)
        return checked_output(self.name, output, len(feature), edges.num_rows, self.num_outputs, place)

    def _beside_a_loop(self, module: nn.Module, feature: Tensor, edges: BatchEdges, place: Place) -> Tensor:
        """The result on vertices without edges, together with one more vertex that has an edge to itself."""
        loop = place.zeros((2, 1), edges.index.dtype) + len(feature)
        weighs = self.weighs and edges.weight is not None
        given = {EDGE_WEIGHT: place.zeros((1,), feature.dtype) + 1} if weighs else {}
        output: Tensor = module(torch.cat([feature, place.zeros((1, feature.shape[1]), feature.dtype)]), loop, **given)
        return output


class EdgeModel(ModuleModel):
    """A torch module, called with the features and the edges of a batch.

    Attributes:
        call: calls the module.
    """

    def create_parameters(self, generator: torch.Generator) -> None:  # noqa: ARG002 - torch's global one
        """See :meth:`Model.create_parameters`.

        Raises:
            InputError: the module cannot be constructed with the options, or does not take a small graph.
        """
        dims, found = self.options.dims, self.found()
        taken = forward_names(found)
        self.call = EdgeCall(self.options.module, takes_weights(found), taken.issuperset(HOPS), dims[-1])
        given = {
            "in_channels": dims[0],
            # Without hidden layers, no output has this width.
            "hidden_channels": dims[1],
            "num_layers": len(dims) - 1,
            "out_channels": dims[-1],
        }
        self.module = self.constructed(given)
        self._try()

    def _try(self) -> None:
        """Call the module on small graphs; its parameters that have no sizes yet get them.

        Raises:
            InputError: it fails, or does not return a row for each vertex.
        """
        with evaluating(self.module):
            fresh = None
            # Some modules hold objects that cannot be copied.
            with suppress(Exception):
                fresh = copy.deepcopy(self.module)
            # With real values, even in a forecast of memory.
            with torch.no_grad(), performed():
                self._try_ring()
                if fresh is not None:
                    self._try_again(fresh)
                self.call = replace(self.call, trims=self.call.trims and self._trims())

    def _try_ring(self) -> None:
        ring = np.arange(_TRIED)
        index = np.stack([np.tile(ring, 2), np.concatenate([ring, np.roll(ring, 1)])])
        try:
            self._call_on(index, _TRIED, _TRIED)
        except InputError:
            raise
        # Any exception here comes from the module, for arguments that it always gets.
        except Exception as error:
            raise InputError(
                f"model {self.call.name}: its forward fails on a graph of {_TRIED} vertices with"
                f" {counted(self.options.dims[0], 'feature')}: {type(error).__name__}: {error}"
            ) from error

    def _try_again(self, fresh: nn.Module) -> None:
        """Call the module on another graph, where it must return the same as a copy that has seen no other graph.

        Args:
            fresh: a copy of the module from before its first call.

        Raises:
            InputError: the module keeps the edges of an earlier call.
        """
        star = np.stack([np.arange(_TRIED), np.zeros(_TRIED, np.int64)])
        feature = self.place.lasting((_TRIED, self.options.dims[0]), self.dtype).fill_(1)
        feature = feature.cumsum(0)
        weight = self.place.lasting((_TRIED,), self.dtype).fill_(1)
        edges = BatchEdges(self.place.from_numpy(star), weight, _TRIED, None)
        try:
            # Parameters without sizes get random values here, which must not affect the training.
            with torch.random.fork_rng(devices=[]):
                self.call(fresh, feature, edges, self.place)
                fresh.load_state_dict(self.module.state_dict())
                expected, again = (self.call(fresh, feature, edges, self.place) for _ in range(2))
        # The module takes only other graphs, or draws random numbers during evaluation.
        except Exception:  # noqa: BLE001 - whatever the module raises
            return
        if not torch.equal(expected, again):
            return
        try:
            found = self.call(self.module, feature, edges, self.place)
        except Exception:  # noqa: BLE001 - likewise
            found = None
        if found is None or not torch.allclose(found, expected, equal_nan=True):
            raise InputError(
                f"model {self.call.name}: its output depends on the graph of an earlier call, as with cached=True of"
                " PyG's convolutions, but every batch has other edges; construct it without (cached=False)"
            )

    def _trims(self) -> bool:
        """Whether the module can skip rows that its layers do not need; PyG's cannot with jumping knowledge."""
        path, num_layers = np.arange(self.num_layers), self.num_layers
        try:
            self._call_on(np.stack([path + 1, path]), num_layers + 1, 1, ([1] * (num_layers + 1), [1] * num_layers))
        except Exception:  # noqa: BLE001 - whatever the module raises
            return False
        return True

    def _call_on(
        self, index: NDArray[np.int64], count: int, num_rows: int, hops: tuple[list[int], list[int]] | None = None
    ) -> None:
        """Call the module on a graph of ``count`` vertices with equal features."""
        feature = self.place.lasting((count, self.options.dims[0]), self.dtype).fill_(1)
        weight = self.place.lasting((index.shape[1],), self.dtype).fill_(1)
        self.call(self.module, feature, BatchEdges(self.place.from_numpy(index), weight, num_rows, hops), self.place)

    def forward(self, inputs: Inputs) -> Tensor:
        """(num_rows, num_outputs) scores of the leading vertices of the batch of the operator.

        Collective if the module has batch normalizations over the rows of all ranks.
        """
        edges = batch_edges(self.operator, weighs=self.call.weighs)
        self.operator.grid.comm.traffic.watch.step = "forward"
        feature = self.as_sums(inputs.value)
        if not len(feature) and not self.normalizes_together:
            # Few modules can handle a graph without vertices.
            return self.no_scores()
        scores = self.call(self.module, feature, edges, self.place)
        self._announce_backward(scores, self.num_layers)
        return scores


def batch_edges(operator: Operator, *, weighs: bool) -> BatchEdges:
    """The edges of an operator's batch. Communicates nothing.

    Args:
        weighs: weights are wanted.
    """
    if isinstance(operator, LayeredOperator):
        return layered_edges(operator.batch, operator.normalization, operator.place, weighs=weighs)
    assert isinstance(operator, SampledRows)
    rows = operator.batch
    matrix, sides = rows.matrix.in_memory()[0], rows.sides
    place = operator.place
    has_weights = weighs and (len(sides.left) > 0 or matrix.data is not None)
    weight = scaled_entries(matrix, sides, place) if has_weights else None
    return BatchEdges(with_values(edge_index(matrix, place)), weight, matrix.num_rows)


def layered_edges(batch: LayeredBatch, normalization: str, place: Place, *, weighs: bool) -> BatchEdges:
    """The edges of a layered batch, whose neighbors are drawn once. Communicates nothing.

    Args:
        normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`; its degrees are degrees in the whole
            graph.
        weighs: weights are wanted.
    """
    hops, data, weight = hops_of(batch, place), batch.blocks[0].data, None
    if weighs and normalization != "none":
        weight = edge_weight(batch, normalization, place)
    elif weighs and data is not None:
        weight = place.from_numpy(np.asarray(data)).to(place.sum_dtype)
    counts = hops.num_sampled_nodes, hops.num_sampled_edges
    return BatchEdges(with_values(hops.edge_index), weight, batch.num_seeds, counts)
