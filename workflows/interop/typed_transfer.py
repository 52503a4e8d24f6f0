"""Compares the graph with types that a run was trained on with another one that the run is to predict on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.artifacts.typed.typed_graph import Relation, ReverseRelation, TypedGraph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.storage.runs.transfer import AllEdges, links_of_run
from gnnloom.storage.wording import counted
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.typed_vertices import TypedVertices, chosen_graph
from gnnloom.workflows.interop.transfer_checks import LEARNED, check_features

#: Names of columns of edges in messages.
_COLUMNS: Final = {"weight": "a weight", "time": "a time", "feature": "features", "label": "a label"}


def other_graph(dataset: Dataset, graph: str | None, vertices: str | None) -> TypedGraph:
    """The graph with types that a run is to predict on.

    Args:
        dataset: dataset of the graph.
        graph: key of the graph; None for the only one.
        vertices: choice of vertex data as ``TYPE=KEY,...``, and so of their graph; None for the only ones.

    Raises:
        NotFoundError: there is no such graph.
        InputError: there are several, and no choice.
    """
    return dataset.typed_graph(graph) if graph is not None else chosen_graph(dataset, _choices(vertices))


def store_reverses(dataset: Dataset, graph: TypedGraph) -> None:
    """Store the reverses of the relations of a graph, unless they are stored already. Called by one process."""
    # Without worker processes, a script needs no `if __name__ == "__main__":`.
    reverse_relations(dataset, graph, InProcessCluster())


def _choices(vertices: str | None) -> Sequence[str]:
    return () if vertices is None else vertices.split(",")


@dataclass(frozen=True)
class TypedData:
    """A graph with types, and the vertex data that a run reads.

    Attributes:
        dataset: dataset of the graph.
        reads: what the run reads.
        learns: features of types without features are learned.
    """

    dataset: Dataset
    reads: TypedVertices
    learns: bool

    @classmethod
    def trained(cls, dataset: Dataset, run: Run, config: TrainConfig) -> TypedData:
        """The data that a run was trained on.

        Raises:
            NotFoundError: a part of it was removed.
        """
        links = None if config.mode.relation is None else links_of_run(dataset, run)
        how: dict[str, Any] = {"reverse": config.mode.reverse, "links": links, "trains": False}
        reads = TypedVertices.open(dataset, config.mode.of_type, run.inputs(), **how)
        return cls(dataset, reads, config.model.embed > 0)

    @classmethod
    def other(
        cls, dataset: Dataset, graph: TypedGraph, vertices: str | None, inputs: Mapping[str, str], config: TrainConfig
    ) -> TypedData:
        """Another graph, with vertex data of the types that have some in the training.

        Args:
            dataset: dataset of ``graph``.
            vertices: choice of vertex data; see :func:`other_graph`.
            inputs: what the run read in the training, by kind.

        Raises:
            NotFoundError: the graph lacks a type or relation, or its reverses are not stored.
            InputError: a type has several vertex data, and there is no choice.
        """
        mode = config.mode
        links = None if mode.relation is None else AllEdges(graph, None, mode.relation)
        how: dict[str, Any] = {"chosen": _choices(vertices), "reverse": mode.reverse, "links": links, "trains": False}
        found = TypedVertices.open(dataset, mode.of_type, {}, key=graph.artifact.key, **how)
        read = {mode.of_type, *(kind.partition("/")[2] for kind in inputs if kind.startswith("vertices/"))}
        stored = {name: each for name, each in found.stored.items() if name in read}
        return cls(dataset, replace(found, stored=stored), config.model.embed > 0)

    @property
    def inputs(self) -> dict[str, str]:
        """Kind to key of what the run reads."""
        return self.reads.inputs

    @property
    def vertices(self) -> Vertices | None:
        """Vertex data with the labels that are predicted; None for pairs, and if there are none."""
        return None if self.reads.links is not None else self.reads.stored.get(self.reads.of_types[0].name)

    @property
    def learned(self) -> Mapping[str, SourceIds]:
        """The arrays of a checkpoint with a learned vector of each vertex, and the ids of the vertices."""
        types = self.reads.schema.without_features if self.learns else ()
        return {f"{LEARNED}_{name}": self.reads.graph.ids(name) for name in types}

    def check_against(self, trained: TypedData) -> None:
        """Check that predictions depend on the same types, relations and columns as in the training.

        Raises:
            InputError: something differs.
        """
        before, now, where = trained.reads.schema, self.reads.schema, str(self.reads.graph.artifact.path)
        _same(where, "type", [*before.counts], [*now.counts])
        _same(where, "relation", [" ".join(each) for each in before.columns], [" ".join(each) for each in now.columns])
        for then, this in zip(trained._relations, self._relations, strict=True):
            _check_columns(where, then, this)
        if before.without_features and not self.learns:
            raise InputError(
                f"{where}: the model has vectors of its own for type {before.without_features[0]}, and none for the"
                " vertices of other graphs; train it with --embed, which learns vectors by id"
            )
        for name in now.widths:
            if name not in before.widths:
                raise InputError(f"{where}: type {name} has features, but the run has learned vectors of this type")
        for name in before.widths:
            check_features(trained.reads.stored[name], self.reads.stored.get(name), self.dataset.name, name)

    @property
    def _relations(self) -> list[Relation | ReverseRelation]:
        """The relations that predictions depend on, in the order of their names."""
        found = (each for each in self.reads.relations if each.edge_type in self.reads.schema.columns)
        return sorted(found, key=lambda each: each.edge_type)


def _same(where: str, what: str, before: Sequence[str], now: Sequence[str]) -> None:
    lost, more = [name for name in before if name not in now], [name for name in now if name not in before]
    if lost or more:
        differences = [f"lacks {what} {name}" for name in lost[:1]]
        differences += [f"has {what} {name} in addition" for name in more[:1]]
        raise InputError(
            f"{where}: the graph {' and '.join(differences)}; predictions of the run depend on"
            f" {counted(len(before), what)}: {', '.join(before)}. Ingest the same tables; a table may have no rows"
        )


def _check_columns(where: str, trained: Relation | ReverseRelation, other: Relation | ReverseRelation) -> None:
    before, now = (_columns_of(each) for each in (trained, other))
    for name in before.keys() | now.keys():
        if before.get(name) != now.get(name):
            had, has = (_described(name, each.get(name)) for each in (before, now))
            raise InputError(
                f"{where}: the edges of relation {other.name} have {has}, but had {had} in the training; ingest the"
                " same columns"
            )


def _columns_of(relation: Relation | ReverseRelation) -> dict[str, list[str]]:
    """The columns of the edges of a relation: names of the features, and words of the labels."""
    of = (relation.relation if isinstance(relation, ReverseRelation) else relation).whole
    if not of.edge_columns:
        return {name: [] for name, has in (("weight", of.weighted), ("time", of.has_times)) if has}
    details = {"feature": of.edge_columns.get("feature", []), "label": of.classes}
    return {name: details.get(name, []) for name in of.edge_columns}


def _described(name: str, details: Sequence[str] | None) -> str:
    if details is None:
        return f"no {name}"
    return f"{_COLUMNS[name]} ({', '.join(details)})" if details else _COLUMNS[name]
