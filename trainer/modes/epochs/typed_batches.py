"""Batches of a run on a graph with types: vertices of one type, or pairs of one relation, and how a loss reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.links import LinkedRelation
from gnnloom.storage.artifacts.mapped_vertices import SplitVertices
from gnnloom.storage.artifacts.samples import StoredBatch
from gnnloom.storage.artifacts.typed.typed_samples import HeteroBatch, TypedSamples
from gnnloom.storage.sampling.layers.options import joint_relations
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.layers.typed import TypedSample
from gnnloom.trainer.feed.batches import Batches, Drawn
from gnnloom.trainer.feed.pair_seeds import TRAIN, PairSet
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.loader.choices import FEATURES
from gnnloom.trainer.loader.stored import StoredTypedSource
from gnnloom.trainer.loader.streams import Fields
from gnnloom.trainer.loader.typed import TypedPairSource, TypedVertexSource
from gnnloom.trainer.loader.vertices import FEATURE_DTYPES, VertexChoice
from gnnloom.trainer.models.networks.typed_model import TypedBatch
from gnnloom.trainer.modes.epochs.mode import ModeContext
from gnnloom.trainer.modes.epochs.model_inputs import TypedInputs
from gnnloom.trainer.modes.epochs.pair_batches import batch_loss
from gnnloom.trainer.operators.whole_rows import AXIS
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.objective import StepLoss
from gnnloom.trainer.tasks.objectives.pairs import PairObjective
from gnnloom.trainer.tasks.options import BATCH_PAIRS

#: Fan-outs of each relation, from the seeds on.
Fanouts = Mapping[str, tuple[int, ...]]


def vertex_source(
    given: TypedInputs,
    place: Place,
    chosen: NDArray[np.int64] | SplitVertices,
    fanouts: Fanouts,
    batch_size: int,
    **options: Any,
) -> TypedVertexSource:
    """Batches of some vertices of a run's first type, with sampled neighbors.

    Args:
        chosen: (num_seeds,) int64 vertices of the type, ascending.
        options: further ones of the source.
    """
    of_type, common = given.data.of_types[0].name, _source_fields(given, place, fanouts)
    # The type of the seeds has an entry in any case.
    vertices = {of_type: VertexChoice(None, "none", labels=False), **common.pop("vertices")}
    return TypedVertexSource(
        of_type=of_type, chosen=chosen, vertices=vertices, batch_size=batch_size, **common, **options
    )


def _source_fields(given: TypedInputs, place: Place, fanouts: Fanouts) -> dict[str, Any]:
    """The fields that all sources of a run have."""
    data = given.data
    features = next(name for name in FEATURES if FEATURE_DTYPES[name] == place.feature_dtype)
    choices = {
        name: VertexChoice(stored.artifact.key, features, given.norm, labels=False, finite=True)
        for name, stored in data.stored.items()
        if stored.has_feature and name in data.schema.counts
    }
    return {
        "dataset": data.dataset.path,
        "graph": data.graph.artifact.key,
        "vertices": choices,
        "features": features,
        "reverses": None if data.reverses is None else data.reverses.artifact.key,
        "fanouts": fanouts,
        # The mode states no memory for windows of batches.
        "cache_memory": 0,
        "has_types": True,
        "views": given.views,
    }


def num_seeds(sample: TypedSample, types: Iterable[str]) -> dict[str, int]:
    """Number of seeds of some types."""
    return {name: sample.num_vertices[name][0] for name in types}


def measured_rows(context: ModeContext) -> NDArray[np.int64] | None:
    """(num_measured,) int64 rows of the rank whose scores metrics read, ascending; None for all rows."""
    return None if context.measured is None else context.place.to_numpy(context.measured)


def vertices_of(fields: Mapping[Any, Mapping[str, Any]] | None, of_type: str, place: Place) -> NDArray[np.int64]:
    """(num_vertices,) int64 vertices of a type in a batch; none without a batch."""
    return np.empty(0, np.int64) if fields is None else place.to_numpy(fields[of_type]["n_id"])


def learned_rows(
    given: TypedInputs, fields: Mapping[Any, Mapping[str, Any]] | None, place: Place
) -> dict[str, tuple[NDArray[np.int64], Tensor]]:
    """The vertices of a batch of each type with learned features, and their rows as they are now. Collective.

    Args:
        fields: of the batch; None on a rank that has none.
    """
    found = dict[str, tuple[NDArray[np.int64], Tensor]]()
    for name, view in given.learned.items():
        vertices = vertices_of(fields, name, place)
        found[name] = vertices, view.in_step(vertices, view.ahead(vertices))
    return found


@dataclass(frozen=True)
class TypedExamples:
    """A batch of a run as a step trains on it.

    Attributes:
        pairs: the pairs of the batch; None for vertices.
    """

    batch: TypedBatch
    pairs: PairSet | None = None


class ExamplesOfRun(ABC):
    """The training examples of a run on a graph with types: makes batches, and losses of batches."""

    def __init__(self, context: ModeContext, given: TypedInputs) -> None:
        """Communicates nothing."""
        self._context, self._given, self._data = context, given, given.data

    @abstractmethod
    def open(self, fanouts: Fanouts) -> Batches[TypedExamples]:
        """Map what batches are made from. Communicates nothing."""

    @abstractmethod
    def loss(self, examples: TypedExamples | None) -> StepLoss:
        """The mean loss over the examples of all ranks' batches. Collective.

        Args:
            examples: None on a rank that has none in a step.
        """

    def _options(self) -> dict[str, Any]:
        """Options of a source."""
        options = self._context.options
        # For the batch of the step, the one before it, and the batches that are ready.
        found = {"seed": self._context.seed, "kept": options["pool"] + 2}
        found |= {name: options[name] for name in ("replace", "neighbor_sampler")}
        names, total = self._data.relation_names, options["fanout_total"]
        return found | {"joint": joint_relations(options["relation_fanout"], names, total=total)}

    def _seeds(self, examples: TypedExamples | None) -> NDArray[np.int64]:
        """(num_seeds,) int64 the seeds of a batch, as numbers of predicted vertices, ascending."""
        if examples is None:
            return np.empty(0, np.int64)
        fields, counts = examples.batch.fields, examples.batch.num_seeds
        array = self._context.place.to_numpy
        return self._data.joined({name: array(fields[name]["n_id"])[:count] for name, count in counts.items()})


class VertexExamples(ExamplesOfRun):
    """Labeled vertices of one type."""

    def open(self, fanouts: Fanouts) -> Batches[TypedExamples]:
        if self._given.packed is not None:
            return self._packed(self._given.packed)
        seeds, (of_type,) = self._data.labeled(TRAIN), self._data.of_types
        size = self._context.options["batch_size"]
        source = vertex_source(self._given, self._context.place, seeds, fanouts, size, **self._options())

        def make(_: VertexSeeds, drawn: Drawn[TypedSample], found: dict[Any, Fields]) -> TypedExamples:
            return TypedExamples(TypedBatch(found, num_seeds(drawn.sample, [of_type.name])))

        return source.stream(make)

    def _packed(self, samples: TypedSamples) -> Batches[TypedExamples]:
        """Batches that were drawn before."""
        common, context = _source_fields(self._given, self._context.place, {}), self._context
        shared = {name: common[name] for name in ("dataset", "graph", "vertices", "features", "has_types", "views")}
        source = StoredTypedSource(
            **shared, samples=samples.artifact.key, rank=context.comm.rank, counter=context.counter, kept=2
        )

        def make(stored: StoredBatch[HeteroBatch], found: dict[Any, Fields]) -> TypedExamples:
            return TypedExamples(TypedBatch(found, {samples.of_type: stored.batch.num_vertices[samples.of_type][0]}))

        batches = source.stream(make)
        batches.begin()
        return batches

    def loss(self, examples: TypedExamples | None) -> StepLoss:
        context, seeds = self._context, self._seeds(examples)
        labels = context.vertex_objective.read(self._data.rows(seeds), context.place)
        return context.vertex_objective.loss(Layout(context.operator.grid, seeds, (AXIS,)), labels)


class PairExamples(ExamplesOfRun):
    """Pairs of one relation, with the negatives that they are compared with.

    A batch leaves the edges of its pairs and their reverses out of the graph, unless the task keeps them.
    """

    def __init__(self, context: ModeContext, given: TypedInputs, objective: PairObjective) -> None:
        super().__init__(context, given)
        self._objective = objective

    def open(self, fanouts: Fanouts) -> Batches[TypedExamples]:
        own, links = self._objective.options, self._objective.pairs
        source = TypedPairSource(
            links=links.artifact.key,
            batch_size=int(own["link_batch"]) or BATCH_PAIRS,
            negatives=own.get("negatives", 0),
            exclude_targets=own["exclude_targets"],
            **{name: own[name] for name in ("negative_sampler", "strict_negatives") if name in own},
            **_source_fields(self._given, self._context.place, fanouts),
            **self._options(),
        )

        def make(relation: LinkedRelation, drawn: Drawn[TypedSample], found: dict[Any, Fields]) -> TypedExamples:
            batch = TypedBatch(found, num_seeds(drawn.sample, dict.fromkeys([relation.source, relation.target])))
            return TypedExamples(batch, drawn.pairs.moved(links.first_target))

        self._batches = source.stream(make)
        return self._batches

    def loss(self, examples: TypedExamples | None) -> StepLoss:
        pairs = self._nothing if examples is None or examples.pairs is None else examples.pairs
        return batch_loss(self._objective, self._context.labels, pairs, self._seeds(examples))

    @cached_property
    def _nothing(self) -> PairSet:
        """No pairs, with the arrays that the pairs of batches have."""
        pairs = self._batches.prepare(0, 0).pairs
        return PairSet(*[np.empty(0, np.int64)] * 3) if pairs is None else pairs.take(np.empty(0, np.int64))
