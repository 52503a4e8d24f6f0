"""Scores with a module on a graph with types: layer by layer, with all neighbors of some hops, or with sampled ones.

Where the layers of the module are known, every rank computes the outputs of a layer for a range of the vertices of each
type, from the rows of their direct neighbors, and keeps them in temporary files; the next layer gets rows of other
ranks from there. Other modules are called with some vertices and all neighbors within the hops that they read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import BudgetError
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.layers.expansion import OversizedBatchError
from gnnloom.storage.sampling.layers.typed import RelationView, TypedNeighborSampler, TypedSample
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.owners import RangeOwners
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.feed.feature_view import FeatureView, OwnFeatures
from gnnloom.trainer.kernels.dispatch import performed
from gnnloom.trainer.loader.streams import Fields
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.networks.typed_layers import OutputRows, calls_of, last_outputs, level_outputs
from gnnloom.trainer.models.networks.typed_model import TypedBatch, TypedModel
from gnnloom.trainer.models.networks.typed_reach import TypedReach, find_typed_reach, types_of_levels
from gnnloom.trainer.modes.epochs.model_inputs import TypedInputs
from gnnloom.trainer.modes.epochs.typed_batches import learned_rows, num_seeds, vertex_source, vertices_of
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.passes.passes import Out, run_pass
from gnnloom.trainer.passes.ranges import CARRIED, SeedsThatFit, end_of_range
from gnnloom.trainer.place.mapped_rows import MappedRows
from gnnloom.trainer.place.place import Place

logger = logging.getLogger(__name__)

#: Maximum amount of numbers in a batch of several hops for a single vertex.
_CARRIED_ALONE: Final = 1 << 28

#: From the first and the last (exclusive) vertex of a range, the vertices of each type whose outputs a batch computes.
SeedsOfRange = Callable[[int, int], Mapping[str, NDArray[np.int64]]]
#: The outputs that a pass computes for the seeds of a batch, from the outputs of the levels below.
Step = Callable[[TypedBatch, Mapping[OutputRows, Tensor]], Sequence[Tensor]]


class TypedInference:
    """See :class:`gnnloom.trainer.models.networks.typed_model.ScoresOfRows`."""

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
            fit: chooses the vertices of a batch of several hops; None to begin with a few.
        """
        self._given, self._operator, self._model, self._num_hops = given, operator, model, num_hops
        self._fit = fit or SeedsThatFit()
        self._reach: TypedReach | None = None
        #: The sampler of batches and the maker of their fields, once the graph and the features are mapped.
        self._parts: tuple[TypedNeighborSampler, Callable[[TypedSample], Fields]] | None = None
        self.facts: Mapping[str, Any] = {}
        #: Bytes of the temporary files of the last evaluation, which this rank maps.
        self.file_bytes = 0

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

        Raises:
            CollectiveError: the graph or the features are gone, the disk is full, or the neighbors of a single vertex
                are too many.
        """
        own, data, model = self._operator.layout(0).vertex, self._given.data, self._model
        vertices = own if rows is None else own[rows]
        comm, reach = self._operator.grid.comm, self._found_reach()
        together(comm, lambda: self._map(reach.hops))
        self.file_bytes = 0
        hidden, files = self._hidden(reach)

        def last(batch: TypedBatch, below: Mapping[OutputRows, Tensor]) -> Sequence[Tensor]:
            if not reach.layers:
                return [model.scores_of(batch)]
            return [last_outputs(model, model.place, reach.layers, batch, below)]

        def seeds(start: int, stop: int) -> Mapping[str, NDArray[np.int64]]:
            return data.by_type(vertices[start:stop])

        outputs = [("outputs of the model", model.options.dims[-1])]
        (out,) = self._pass(last, len(vertices), seeds, hidden, outputs)
        for each in files:
            together(comm, each.check)
        model.place.files.once(out.check)
        return out.tensor

    def _hidden(self, reach: TypedReach) -> tuple[dict[OutputRows, FeatureView], list[MappedRows]]:
        """Outputs of the layers below the last level, and their files. Collective."""
        comm, model, layers = self._operator.grid.comm, self._model, reach.layers
        place, counts = model.place, model.schema.counts
        found, files = dict[OutputRows, FeatureView](), list[MappedRows]()
        for level, types in sorted(types_of_levels(model.schema, reach).items()):
            below = {key: view for key, view in found.items() if layers[key[0]].level < level}
            for name in types:
                numbers = calls_of(layers, level, name)
                if not numbers:
                    continue
                first, end = split_range(counts[name], comm.size, comm.rank)

                def seeds(start: int, stop: int, name: str = name, first: int = first) -> dict[str, NDArray[np.int64]]:
                    return {name: np.arange(first + start, first + stop)}

                step = partial(level_outputs, model, place, layers, level, name)
                outputs = [(f"outputs of {layers[each].name} for {name}", layers[each].width(name)) for each in numbers]
                written = self._pass(step, end - first, seeds, below, outputs)
                owner = None if comm.size == 1 else RangeOwners(counts[name], comm.size)
                for number, file in zip(numbers, written, strict=True):
                    files.append(file)
                    exchange = RowExchange(comm, partial(np.add, -first), file.tensor, owner, place)
                    found[number, name] = OwnFeatures(exchange)
        return found, files

    def _pass(
        self,
        step: Step,
        count: int,
        seeds: SeedsOfRange,
        hidden: Mapping[OutputRows, FeatureView],
        outputs: Sequence[tuple[str, int]],
    ) -> list[MappedRows]:
        """Compute the outputs of a step for the vertices of this rank. Collective.

        Args:
            count: number of vertices.
            hidden: outputs of the levels below.
            outputs: for messages, and the columns of each.
        """
        comm, place, folder = self._operator.grid.comm, self._model.place, self._given.data.dataset.path
        files, outs = list[MappedRows](), list[Out]()
        for name, width in outputs:
            shape = count, width
            self.file_bytes += count * width * place.sum_dtype.itemsize
            file = together(comm, lambda name=name, shape=shape: place.mapped(folder, name, shape, place.sum_dtype))  # type: ignore[misc]

            def write(start: int, rows: Tensor, file: MappedRows = file) -> None:
                file.write(np.arange(start, start + len(rows)), rows.to(place.sum_dtype))

            files.append(file)
            outs.append(write)
        scoring = _Pass(
            self._given, place, step, hidden, lambda start: together(comm, lambda: self._next(seeds, start, count))
        )
        run_pass(scoring, count, outs, place, comm)
        return files

    def _found_reach(self) -> TypedReach:
        """The module's reach, found by the first rank, because other processors might round differently. Collective."""
        comm, model = self._operator.grid.comm, self._model
        if self._reach is None:
            # With real values, even in a forecast of memory.
            with performed():
                mine = together(comm, lambda: find_typed_reach(model, self._num_hops))
                everywhere = comm.gather_numbers([mine.hops, bool(mine.layers), mine.num_levels])
                if not (everywhere == everywhere[0]).all():
                    mine = together(comm, lambda: find_typed_reach(model, self._num_hops, by_layer=False))
            hops, is_exact = comm.gather_numbers([mine.hops, mine.is_exact])[0].astype(int).tolist()
            self._reach = reach = TypedReach(hops, bool(is_exact), mine.layers)
            how = "layer by layer" if reach.layers else "all neighbors, hop by hop"
            self.facts = {"inference": how, "inference_hops": hops, "inference_exact": reach.is_exact}
            if not reach.is_exact and comm.rank == 0:
                logger.warning(
                    "model %s: no number of hops was found at which in-edges alone give its outputs, for example"
                    " because it reads out-edges or all vertices; it is evaluated on batches of %d hops, and scores"
                    " differ from the scores on the whole graph",
                    model.options.module,
                    hops,
                )
        return self._reach

    def _map(self, num_hops: int) -> None:
        """Map the graph and the features, once."""
        place, data = self._model.place, self._given.data
        if self._parts is None:
            # Only the fields of the source are used: vertices are chosen batch by batch.
            whole = dict.fromkeys(data.relation_names, (ALL,) * num_hops)
            source = vertex_source(self._given, place, np.empty(0, np.int64), whole, 1)
            relations = source.map_relations(data.graph)
            views = [
                RelationView(name, each.source, each.target, source.views.whole_rows(each))
                for name, each in relations.items()
            ]
            sampler = TypedNeighborSampler([each.name for each in data.graph.types], views, 0, whole)
            self._parts = sampler, partial(source.typed_fields, relations, source.vertex_fields(relations))

    def _next(self, seeds: SeedsOfRange, start: int, count: int) -> tuple[int, TypedBatch | None]:
        """The end of the range of vertices that begins at ``start``, and its batch; None at the end.

        Raises:
            BudgetError: the neighbors of a single vertex are too many.
        """
        if start == count or self._parts is None:
            return start, None
        (sampler, fields_of), model, reach = self._parts, self._model, self._found_reach()
        hidden = [width or 0 for each in reach.layers for width in each.widths.values()]
        width = max(*model.schema.widths.values(), *model.options.dims, *hidden)
        if reach.hops == 1:
            # The entries are known before they are drawn.
            stop = end_of_range(lambda *span: self._lengths(sampler, seeds(*span)), start, count, width)
            sample = sampler.sample_of(seeds(start, stop), 0, 0)
        else:
            stop, sample = self._fit.batch(
                np.arange(count),
                start,
                lambda chosen: self._drawn(sampler, seeds(int(chosen[0]), int(chosen[-1]) + 1), len(chosen), width),
                lambda drawn: width * sum(map(sum, [*drawn.num_vertices.values(), *drawn.num_entries.values()])),
            )
        return stop, TypedBatch(fields_of(sample), num_seeds(sample, model.schema.counts))

    def _lengths(self, sampler: TypedNeighborSampler, seeds: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """(num_seeds,) int64 number of entries of each vertex in the rows of all relations, by type."""
        found = {name: np.zeros(len(own), np.int64) for name, own in seeds.items()}
        for each in sampler.relations:
            if each.target in seeds:
                found[each.target] += each.view.lengths(seeds[each.target])
        return np.concatenate(list(found.values()))

    def _drawn(
        self, sampler: TypedNeighborSampler, seeds: Mapping[str, NDArray[np.int64]], count: int, width: int
    ) -> TypedSample | None:
        """The batch of some vertices; None if there are several vertices, and the batch would be too large."""
        alone = count == 1
        try:
            return sampler.sample_of(seeds, 0, 0, most=(_CARRIED_ALONE if alone else CARRIED) // width)
        except OversizedBatchError:
            if not alone:
                return None
        hops = counted(self._found_reach().hops, "hop")
        raise BudgetError(
            f"model {self._model.options.module}: it is evaluated with all neighbors within {hops} of a vertex, and one"
            f" vertex has more than {_CARRIED_ALONE // width:,} edges there; make each layer a submodule that takes"
            " edge_index_dict, or an edge_index, so that layers are evaluated one after the other, or leave the"
            " evaluation out with --no-final-eval"
        ) from None


class _Pass:
    """See :class:`gnnloom.trainer.passes.passes.Pass`; ranks fetch learned features and outputs from each other."""

    def __init__(
        self,
        given: TypedInputs,
        place: Place,
        step: Step,
        hidden: Mapping[OutputRows, FeatureView],
        following: Callable[[int], tuple[int, TypedBatch | None]],
    ) -> None:
        """Compute nothing yet.

        Args:
            following: the end of the range of vertices that begins at a number, and its batch; None at the end.
        """
        self._given, self._place, self._step, self._hidden, self.next = given, place, step, hidden, following

    def read(
        self, given: TypedBatch | None
    ) -> tuple[dict[str, tuple[NDArray[np.int64], Tensor]], dict[OutputRows, Tensor]]:
        fields, place = None if given is None else given.fields, self._place
        found = dict[OutputRows, Tensor]()
        for (number, name), view in self._hidden.items():
            vertices = vertices_of(fields, name, place)
            found[number, name] = view.in_step(vertices, view.ahead(vertices))
        return learned_rows(self._given, fields, place), found

    def outputs(
        self,
        given: TypedBatch | None,
        rows: tuple[dict[str, tuple[NDArray[np.int64], Tensor]], dict[OutputRows, Tensor]],
    ) -> Sequence[Tensor]:
        learned, hidden = rows
        return [] if given is None else self._step(given.with_features(learned), hidden)
