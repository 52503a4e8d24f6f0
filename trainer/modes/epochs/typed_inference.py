"""Exact scores of a module on a graph with types, some vertices at a time, each with all neighbors, hop by hop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.layers.typed import TypedNeighborSampler, TypedSample
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.kernels.dispatch import performed
from gnnloom.trainer.loader.streams import Fields
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.typed_model import TypedBatch, TypedModel
from gnnloom.trainer.models.networks.typed_reach import TypedReach, find_typed_reach
from gnnloom.trainer.modes.epochs.model_inputs import TypedInputs
from gnnloom.trainer.modes.epochs.typed_batches import learned_rows, num_seeds, vertex_source
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.passes.passes import run_pass
from gnnloom.trainer.passes.ranges import SeedsThatFit
from gnnloom.trainer.place.mapped_rows import MappedRows, UnbackedRows

logger = logging.getLogger(__name__)


class TypedInference:
    """See :class:`gnnloom.trainer.models.networks.typed_model.ScoresOfRows`: batches of a rank's vertices.

    Batches grow while they fit in memory; each has one vertex at least.
    """

    def __init__(
        self,
        given: TypedInputs,
        operator: Operator,
        model: TypedModel,
        num_hops: int,
        fit: SeedsThatFit | None = None,
    ) -> None:
        """Communicates nothing.

        Args:
            num_hops: hops of the training, for a module whose reach is not found.
            fit: chooses the vertices of a batch; None to begin with a few.
        """
        self._given, self._operator, self._model, self._num_hops = given, operator, model, num_hops
        self._fit = fit or SeedsThatFit()
        self._reach: TypedReach | None = None
        #: The sampler of batches, and what makes their fields, once the graph and the features are mapped.
        self._parts: tuple[TypedNeighborSampler, Callable[[TypedSample], Fields]] | None = None
        self.facts: Mapping[str, Any] = {}

    def __call__(self, inputs: Inputs) -> Tensor:  # noqa: ARG002 - features come with the batches
        """(num_own, num_outputs) scores of the rank's vertices. Collective."""
        return self.of(None)

    def of(self, rows: NDArray[np.int64] | None) -> Tensor:
        """(num_rows, num_outputs) scores of some of the rank's vertices. Collective.

        Args:
            rows: (num_rows,) int64 numbers of rows of the rank, ascending; None for all rows.

        Returns:
            The scores, of the dtype of sums, in a temporary file that the next check of the place's files compares with
            its record.
        """
        own = self._operator.layout(0).vertex
        vertices = own if rows is None else own[rows]
        comm, hops = self._operator.grid.comm, self._found_reach().hops
        out = together(comm, lambda: self._opened(len(vertices), hops))

        def write(start: int, scores: Tensor) -> None:
            out.write(np.arange(start, start + len(scores)), scores)

        scoring = _Scoring(self._given, self._model, lambda start: together(comm, lambda: self._next(vertices, start)))
        run_pass(scoring, len(vertices), [write], self._model.place, comm)
        return out.tensor

    def _found_reach(self) -> TypedReach:
        """The module's reach, as the first rank finds it: other processors might round otherwise. Collective."""
        comm, model = self._operator.grid.comm, self._model
        if self._reach is None:
            # With values, also in a forecast of memory.
            with performed():
                mine = together(comm, lambda: find_typed_reach(model, self._num_hops))
            hops, is_exact = comm.gather_numbers([mine.hops, mine.is_exact])[0].astype(int).tolist()
            self._reach = reach = TypedReach(hops, bool(is_exact))
            how = "all neighbors, hop by hop"
            self.facts = {"inference": how, "inference_hops": hops, "inference_exact": reach.is_exact}
            if not reach.is_exact and comm.rank == 0:
                logger.warning(
                    "model %s: no number of hops was found at which in-edges alone give its outputs, for example as it"
                    " reads out-edges or all vertices; it is evaluated on batches of %d hops, and scores differ from"
                    " the scores on the whole graph",
                    model.options.module,
                    hops,
                )
        return self._reach

    def _opened(self, count: int, num_hops: int) -> MappedRows | UnbackedRows:
        """Map the graph and the features, once, and make a file for the scores of some vertices."""
        place, data = self._model.place, self._given.data
        if self._parts is None:
            # Only the sampler and the fields of the source are of use: vertices are chosen one batch after the other.
            whole = dict.fromkeys(data.relation_names, (ALL,) * num_hops)
            source = vertex_source(self._given, place, np.empty(0, np.int64), whole, 1)
            relations = source.map_relations(data.graph)
            fields = partial(source.typed_fields, relations, source.vertex_fields())
            self._parts = source.sampler(data.graph, relations), fields
        shape = count, self._model.options.dims[-1]
        out = place.mapped(data.dataset.path, "outputs of the model", shape, place.sum_dtype)
        place.files.once(out.check)
        return out

    def _next(self, vertices: NDArray[np.int64], start: int) -> tuple[int, TypedBatch | None]:
        """The end of the range of vertices that begins at ``start``, and its batch; None at the end."""
        if start == len(vertices) or self._parts is None:
            return start, None
        (sampler, fields_of), model, data = self._parts, self._model, self._given.data
        width = max(*model.schema.widths.values(), *model.options.dims)
        stop, sample = self._fit.batch(
            vertices,
            start,
            lambda seeds: sampler.sample_of(data.by_type(seeds), 0, 0),
            lambda drawn: width * sum(map(sum, [*drawn.num_vertices.values(), *drawn.num_entries.values()])),
        )
        return stop, TypedBatch(fields_of(sample), num_seeds(sample, data.schema.of_types))


class _Scoring:
    """See :class:`gnnloom.trainer.passes.passes.Pass`; ranks fetch learned features from each other."""

    def __init__(
        self, given: TypedInputs, model: TypedModel, following: Callable[[int], tuple[int, TypedBatch | None]]
    ) -> None:
        """Compute nothing yet.

        Args:
            following: the end of the range of vertices that begins at a number, and its batch; None at the end.
        """
        self._given, self._model, self.next = given, model, following

    def read(self, given: TypedBatch | None) -> dict[str, tuple[NDArray[np.int64], Tensor]]:
        return learned_rows(self._given, None if given is None else given.fields, self._model.place)

    def outputs(
        self, given: TypedBatch | None, rows: Mapping[str, tuple[NDArray[np.int64], Tensor]]
    ) -> Sequence[Tensor]:
        return [] if given is None else [self._model.scores_of(given.with_features(rows))]
