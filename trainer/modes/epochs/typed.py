"""``neighbor`` on a graph with types: steps on batches of the vertices of one type, and exact scores of all vertices.

Every rank maps the graph, so any rank can make any batch, and an epoch has the same batches on any number of ranks:
rank r of P takes batches r, P + r, and so on, and a step takes the mean over the batches of all ranks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.mapped_vertices import split_vertices
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.layers.typed import TypedNeighborSampler, TypedSample
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.typed_vertices import TypedRows
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.loader.choices import FEATURES
from gnnloom.trainer.loader.streams import Fields
from gnnloom.trainer.loader.typed import TypedVertexSource
from gnnloom.trainer.loader.vertices import FEATURE_DTYPES, VertexChoice
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.typed_model import TypedBatch, TypedModel
from gnnloom.trainer.models.networks.typed_reach import TypedReach, find_typed_reach
from gnnloom.trainer.modes.epochs.edge_inference import SeedsThatFit
from gnnloom.trainer.modes.epochs.mode import Mode, ModeContext
from gnnloom.trainer.modes.epochs.model_inputs import TypedInputs
from gnnloom.trainer.modes.epochs.prepared import awaited, take_steps
from gnnloom.trainer.modes.neighbor import fanouts
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.operators.whole_rows import AXIS
from gnnloom.trainer.place.arrays import as_array
from gnnloom.trainer.place.mapped_rows import MappedRows, UnbackedRows
from gnnloom.trainer.place.place import Place

logger = logging.getLogger(__name__)


def typed_source(
    given: TypedInputs, place: Place, chosen: NDArray[np.int64], hops: Sequence[int], batch_size: int, **options: Any
) -> TypedVertexSource:
    """Batches of some vertices of a run's type, with sampled neighbors.

    Args:
        chosen: (num_seeds,) int64 vertices of the type, ascending, at least one.
        hops: fan-outs of each relation, from the seeds on.
        options: further ones of the source.
    """
    data = given.data
    features = next(name for name in FEATURES if FEATURE_DTYPES[name] == place.feature_dtype)
    relations = [each.name for each in data.graph.relations]
    if data.reverses is not None:
        relations += [each.name for each in data.reverses.relations]
    choices = {
        name: VertexChoice(stored.artifact.key, features, given.norm, labels=False, finite=True)
        for name, stored in data.stored.items()
        if stored.has_feature and name in data.schema.counts
    }
    return TypedVertexSource(
        dataset=data.dataset.path,
        graph=data.graph.artifact.key,
        of_type=data.of_type.name,
        chosen=chosen,
        # The type of the seeds has an entry in any case.
        vertices={data.of_type.name: VertexChoice(None, "none", labels=False), **choices},
        features=features,
        reverses=None if data.reverses is None else data.reverses.artifact.key,
        fanouts=dict.fromkeys(relations, tuple(hops)),
        batch_size=batch_size,
        # The mode states no memory for windows of batches.
        cache_memory=0,
        has_types=True,
        **options,
    )


def learned_rows(
    given: TypedInputs, fields: Mapping[Any, Mapping[str, Any]] | None
) -> dict[str, tuple[NDArray[np.int64], Tensor]]:
    """The vertices of a batch of each type with learned features, and their rows as they are now. Collective.

    Args:
        fields: of the batch; None on a rank that has none.
    """
    found = dict[str, tuple[NDArray[np.int64], Tensor]]()
    for name, view in given.learned.items():
        vertices = np.empty(0, np.int64) if fields is None else as_array(fields[name]["n_id"])
        found[name] = vertices, view.in_step(vertices, view.ahead(vertices))
    return found


class TypedNeighborMode(Mode):
    """Steps on batches; a rank without a batch takes part in the sums of the last step."""

    def __init__(self, context: ModeContext) -> None:
        """Map what batches are made from. Collective.

        Raises:
            CollectiveError: the fan-outs do not fit the model, or what is read is gone.
        """
        super().__init__(context)
        comm = context.comm
        self._model, self._given = _typed(context.model, context.given)
        self._batches = together(comm, lambda: self._source().open())
        self._numbers = range(comm.rank, self._batches.num_batches, comm.size)
        self._num_steps = -(-self._batches.num_batches // comm.size)

    def _source(self) -> TypedVertexSource:
        context, options = self.context, self.context.options
        hops = fanouts(options["fanout"], self._model.num_layers, on_edges=True)
        seeds = split_vertices(self._given.data.arrays, "train", labeled=True)
        # For the batch of the step, the one before it, and the batches that are ready.
        more = {name: options[name] for name in ("replace", "neighbor_sampler")}
        more |= {"seed": context.seed, "kept": options["pool"] + 2}
        return typed_source(self._given, context.place, seeds, hops, options["batch_size"], **more)

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:
        options = self.context.options
        prepared = self._batches.of_epoch(epoch, self._numbers, options["sampler_threads"], options["pool"])
        with closing(awaited(prepared, self.context.comm.traffic)) as batches:
            return take_steps(self._model, epoch, self._num_steps, lambda: self._step(next(batches, None)), update)

    def _step(self, fields: Fields | None) -> tuple[float, float]:
        """Form the gradients of a batch; returns this rank's contribution to the loss, and its terms. Collective."""
        context, data, model = self.context, self._given.data, self._model
        seeds, batch = np.empty(0, np.int64), None
        if fields is not None:
            own = fields[data.of_type.name]
            seeds, batch = as_array(own["n_id"])[: own["batch_size"]], TypedBatch(fields, own["batch_size"])
        labels = context.vertex_objective.read(TypedRows(data, seeds), context.place)
        model.zero_grad()
        loss = context.vertex_objective.loss(Layout(context.operator.grid, seeds, (AXIS,)), labels)
        if not loss.num_terms:
            return 0.0, 0.0
        asked = learned_rows(self._given, None if batch is None else batch.fields)
        contribution = loss(model.scores_of(None if batch is None else batch.with_features(asked)))
        contribution.backward()  # type: ignore[no-untyped-call]
        for name, (vertices, rows) in asked.items():
            self._given.learned[name].give_back(vertices, rows)
        return float(contribution.detach()), loss.num_terms

    def scores(self) -> Tensor:
        """See :meth:`Mode.scores`."""
        measured, inference = self.context.measured, self._model.inference
        assert isinstance(inference, TypedInference)
        return inference.of(None if measured is None else as_array(measured))


class TypedInference:
    """See :class:`gnnloom.trainer.models.networks.module_model.Inference`: batches of a rank's vertices, all neighbors.

    Batches grow while they fit in memory; each has one vertex at least.
    """

    def __init__(
        self, given: TypedInputs, operator: Operator, model: TypedModel, given_fanouts: tuple[int, ...]
    ) -> None:
        """Communicates nothing.

        Args:
            given_fanouts: of the training; none for the usual ones.
        """
        self._given, self._operator, self._model = given, operator, model
        self._num_hops = len(fanouts(given_fanouts, model.num_layers, on_edges=True))
        self._fit = SeedsThatFit()
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
        comm, hops, start = self._operator.grid.comm, self._found_reach().hops, 0
        out = together(comm, lambda: self._opened(len(vertices), hops))
        # Ranks fetch learned features from each other for every batch; a rank without further vertices takes part.
        while comm.gather_numbers([start < len(vertices)]).any():
            stop, batch = together(comm, partial(self._next, vertices, start))
            asked = learned_rows(self._given, None if batch is None else batch.fields)
            if batch is not None:
                scores = self._model.scores_of(batch.with_features(asked))
                out.write(np.arange(start, stop), scores)
            start = stop
        return out.tensor

    def _found_reach(self) -> TypedReach:
        """The module's reach, as the first rank finds it: other processors might round otherwise. Collective."""
        comm, model = self._operator.grid.comm, self._model
        if self._reach is None:
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
            own = self._operator.layout(0).vertex
            source = typed_source(self._given, place, own, [ALL] * num_hops, 1)
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
        (sampler, fields_of), model = self._parts, self._model
        width, of_type = max(*model.schema.widths.values(), *model.options.dims), self._given.data.of_type.name
        stop, sample = self._fit.batch(
            vertices,
            start,
            lambda seeds: sampler.sample_of({of_type: seeds}, 0, 0),
            lambda drawn: width * sum(map(sum, [*drawn.num_vertices.values(), *drawn.num_entries.values()])),
        )
        return stop, TypedBatch(fields_of(sample), stop - start)


def _typed(model: Any, given: Any) -> tuple[TypedModel, TypedInputs]:
    """The model and its inputs, as the session has made them for a graph with types."""
    assert isinstance(model, TypedModel)
    assert isinstance(given, TypedInputs)
    return model, given
