"""The data of a run on a graph with types: there are no shards; every rank maps the graph and its data.

A run predicts the vertices of one type, or the pairs of one relation, whose ends may be of two types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.artifact_info import describe_candidates
from gnnloom.storage.artifacts.links import LinkedRelation, Links
from gnnloom.storage.artifacts.mapped_vertices import SplitVertices, map_vertices
from gnnloom.storage.artifacts.typed.reverses import Reverses, UnstoredReverses
from gnnloom.storage.artifacts.typed.typed_graph import Relation, ReverseRelation, TypedGraph, VertexType
from gnnloom.storage.artifacts.typed.typed_names import vertex_choices
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.vertex_arrays import missing_for_training
from gnnloom.storage.matrix.ranges import Span
from gnnloom.storage.wording import did_you_mean, shell_command
from gnnloom.trainer.data.owners import EndOwners


@dataclass(frozen=True)
class TypedSchema:
    """The types and relations on which predictions depend: all on a path of edges to a predicted type.

    Attributes:
        of_types: the types whose vertices are predicted: one, or the types of the sources and the targets of pairs.
        counts: number of vertices of each type, in the order of the graph.
        widths: number of features of each type that has features, in this order.
        learned: the types whose features are learned.
        columns: for each relation (source type, name, target type), in the order of the graph, the columns of its
            edges: ``weight``, ``time``, ``feature`` or ``label``, and the width of the features, 1 for the others.
    """

    of_types: tuple[str, ...]
    counts: Mapping[str, int]
    widths: Mapping[str, int]
    columns: Mapping[tuple[str, str, str], Mapping[str, int]]
    learned: Sequence[str] = ()

    def learning(self, width: int) -> TypedSchema:
        """The same schema with learned features of a width for types without features; unchanged for width 0."""
        if not width:
            return self
        widths = {name: self.widths.get(name, width) for name in self.counts}
        return replace(self, widths=widths, learned=self.without_features)

    @property
    def without_features(self) -> list[str]:
        """The types that have no features."""
        return [name for name in self.counts if name not in self.widths]


@dataclass(frozen=True)
class TypedVertices:
    """The predicted vertices, and the graph around them; has the same facts as shards about their vertices.

    Attributes:
        graph: without the held-out edges of the links, if there are links.
        of_types: the types whose vertices are predicted: one, or the types of the sources and the targets of pairs.
        stored: vertex data of each type that has vertex data.
        reverses: reverses of the relations, along which batches also gather; None if they are not read.
        links: the predicted pairs; None if labels of vertices are predicted.
    """

    dataset: Dataset
    graph: TypedGraph
    of_types: tuple[VertexType, ...]
    stored: Mapping[str, Vertices]
    reverses: Reverses | None
    links: Links | None = None

    @classmethod
    def open(
        cls,
        dataset: Dataset,
        of_type: str | None,
        keys: Mapping[str, str],
        *,
        chosen: Sequence[str] = (),
        reverse: bool = False,
        links: Links | None = None,
        key: str | None = None,
        trains: bool = True,
        plans: bool = False,
    ) -> TypedVertices:
        """Open the graph and the vertex data.

        Args:
            of_type: type of the predicted vertices; None for pairs.
            keys: inputs of the existing run, in the form of :attr:`inputs`; empty for a new run.
            chosen: choice between several vertex data of a type, as ``TYPE=KEY`` each, and so between several graphs.
            links: the predicted pairs of a relation.
            key: key of the graph, if there is a choice.
            trains: the data are for training, and not only for prediction.
            plans: the data are for a forecast, which does not need stored reverses.

        Raises:
            InputError: there are several graphs with types, or several vertex data of a type, and no choice; or the
                vertices of the type have no labels or no split to train on.
            NotFoundError: there is no graph with types, no such type or vertex data, or no reverses although they are
                requested.
        """
        named = of_type or ""
        known = {name.partition("/")[2] or named: key for name, key in keys.items() if name.startswith("vertices")}
        known |= vertex_choices(chosen)
        own = None if links is None else links.message_graph
        graph = dataset.typed_graph(keys.get("graph") or key or own or _graph_of(dataset, known))
        stored = {name: dataset.vertices(key, graph.artifact.key, name) for name, key in known.items()}
        # A continued run reads the same data as before, even if other types have new data.
        for each in () if keys else graph.types:
            if each.name not in known and (data := _only(dataset, graph, each.name)) is not None:
                stored[each.name] = data
        reverses = _reverses(dataset, graph, plans=plans) if reverse else None
        relation = None if links is None else links.relation
        names = [named] if relation is None else dict.fromkeys([relation.source, relation.target])
        found = cls(dataset, graph, tuple(graph.type(name) for name in names), stored, reverses, links)
        if trains:
            found.check()
        return found

    @property
    def relation(self) -> LinkedRelation | None:
        """The relation whose pairs are predicted; None for vertices."""
        return None if self.links is None else self.links.relation

    @property
    def relations(self) -> list[Relation | ReverseRelation]:
        """The relations along which batches gather: all relations, and their reverses if these are read."""
        reverses = () if self.reverses is None else [self.graph.reverse(each.name) for each in self.graph.relations]
        return [*self.graph.relations, *reverses]

    @property
    def relation_names(self) -> list[str]:
        """Names of :attr:`relations`."""
        return [each.name for each in self.relations]

    @property
    def without_neighbors(self) -> list[str]:
        """Names of the predicted types to which no relation leads: their vertices gather nothing."""
        reached = {each.target.name for each in self.relations}
        return [each.name for each in self.of_types if each.name not in reached]

    @property
    def _of_type(self) -> VertexType:
        """The type whose labels are predicted, of a run on vertices."""
        return self.of_types[0]

    def check(self) -> None:
        """Check that there are examples for training.

        Raises:
            InputError: labels of vertices are predicted, which have no labels, or no split.
        """
        if self.links is not None:
            return
        data = self.stored.get(self._of_type.name)
        missing = [name for name in missing_for_training(() if data is None else data.names) if name != "feature"]
        if missing:
            where = self.graph.artifact.path if data is None else data.artifact.path
            raise InputError(
                f"{where}: the vertices of type {self._of_type.name} have no {' and no '.join(missing)}; add them with"
                f" `{shell_command('gnnloom', 'features', self.dataset.name, '--of-type', self._of_type.name)} ...`"
            )

    def check_features(self) -> None:
        """Check that every type has features, for a model that reads features.

        Raises:
            InputError: a type on which predictions depend has no features.
        """
        if not (lacking := self.schema.without_features):
            return
        name, dataset = lacking[0], self.dataset.name
        raise InputError(
            f"{self.graph.artifact.path}: the vertices of type {' and of type '.join(lacking)} have no features, and"
            f" {' and '.join(each.name for each in self.of_types)} depend on them; add some with"
            f" `{shell_command('gnnloom', 'features', dataset, '--of-type', name)} ...`,"
            " learn some with `gnnloom train --embed WIDTH`, or let the model have vectors of its own: its forward then"
            " takes n_id_dict"
        )

    @property
    def artifact(self) -> Artifact:
        """The vertex data of the type; the graph of a run on pairs, or if the type has no data."""
        data = None if self.links is not None else self.stored.get(self._of_type.name)
        return self.graph.artifact if data is None else data.artifact

    @property
    def inputs(self) -> dict[str, str]:
        """Kind to key of all inputs: ``vertices`` of the labeled type, and ``vertices/TYPE`` of other types."""
        found = {"graph": self.graph.artifact.key}
        labeled = None if self.links is not None else self._of_type.name
        for name in self.schema.counts:
            if name in self.stored:
                found["vertices" if name == labeled else f"vertices/{name}"] = self.stored[name].artifact.key
        if self.reverses is None or isinstance(self.reverses, UnstoredReverses):
            return found
        return found | {"transpose": self.reverses.artifact.key}

    @property
    def num_vertices(self) -> int:
        """Number of predicted vertices; for pairs, of possible sources and possible targets."""
        return self._of_type.count if self.links is None else self.links.num_ends

    @property
    def num_features(self) -> int:
        return self._size("num_features")

    @property
    def num_classes(self) -> int:
        return self._size("num_classes")

    @property
    def num_targets(self) -> int:
        return self._size("num_targets")

    def _size(self, name: str) -> int:
        """A size of the vertex data of the type; 0 if there are none, as for pairs."""
        data = self.stored.get(self._of_type.name)
        return 0 if data is None else int(getattr(data, name))

    def owners(self, num_ranks: int) -> EndOwners:
        """The ranks that own the predicted vertices: each has a range of each type."""
        first = 0 if self.links is None else self.links.first_target
        return EndOwners(first, self.num_vertices, num_ranks)

    def by_type(self, vertices: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Predicted vertices, as numbers within their types.

        Args:
            vertices: (num_vertices,) int64, ascending; for pairs, in one numbering of sources and targets.
        """
        if len(self.of_types) == 1:
            return {self.of_types[0].name: vertices}
        source, target = self.of_types
        at = int(np.searchsorted(vertices, source.count))
        return {source.name: vertices[:at], target.name: vertices[at:] - source.count}

    def joined(self, vertices: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """The vertices of :meth:`by_type`, (num_vertices,) int64, from numbers within their types."""
        first, found = 0, list[NDArray[np.int64]]()
        for each in self.of_types:
            found.append(vertices[each.name] + first)
            first += each.count
        return np.concatenate(found)

    #: The model may use the columns of edges or not.
    weighted = False
    #: Rows and columns may have different types.
    symmetric = False

    def __contains__(self, name: str) -> bool:
        data = None if self.links is not None else self.stored.get(self._of_type.name)
        return data is not None and name in data.names

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """(num_vertices, ...) vertex data of the type, mapped."""
        return map_vertices(self.stored[self._of_type.name])

    def labeled(self, split: str) -> SplitVertices:
        """The labeled vertices of a split, ascending."""
        return SplitVertices(self.arrays, split)

    def own_rows(self, num_ranks: int, rank: int) -> TypedRows:
        """The rows of a rank."""
        return self.rows(self.owners(num_ranks).of(rank))

    def rows(self, vertices: NDArray[np.int64] | Span) -> TypedRows:
        """The vertex data of some predicted vertices; see :class:`TypedRows`."""
        return TypedRows(self, vertices)

    @cached_property
    def schema(self) -> TypedSchema:
        """The types and relations that predictions depend on."""
        relations = self.relations
        predicted = tuple(each.name for each in self.of_types)
        names, added = set[str](), set(predicted)
        while added:
            names |= added
            added = {each.source.name for each in relations if each.target.name in names} - names
        counts = {each.name: each.count for each in self.graph.types if each.name in names}
        widths = {
            name: self.stored[name].num_features
            for name in counts
            if name in self.stored and self.stored[name].has_feature
        }
        columns = {each.edge_type: _columns(each) for each in relations if each.target.name in names}
        return TypedSchema(predicted, counts, widths, columns)


def chosen_graph(dataset: Dataset, chosen: Sequence[str], links: Links | None = None) -> TypedGraph:
    """The graph of a new run; arguments and errors as for :meth:`TypedVertices.open`."""
    own = None if links is None else links.message_graph
    return dataset.typed_graph(own or _graph_of(dataset, vertex_choices(chosen)))


def links_of_relation(dataset: Dataset, relation: str, key: str | None = None, graph: str | None = None) -> Links:
    """The links of a relation of a graph with types.

    Args:
        key: key of the links, or its first digits; None for the only links.
        graph: key of the graph without their held-out edges; None for any.

    Raises:
        NotFoundError: there are no such links.
        InputError: there are several, or none of this relation.
    """
    keys = [info.key for info in dataset.artifacts("links") if info.state == "complete"]
    found = [dataset.links(each) for each in keys] if key is None else [dataset.links(key)]
    # If there are several links, each holds out different edges.
    found = [each for each in found if graph in {None, each.message_graph}]
    fitting = [each for each in found if each.relation is not None and each.relation.name == relation]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        keys = [each.artifact.key for each in fitting]
        raise InputError(
            f"links: dataset {dataset.name} has several of relation {relation}: choose one of {', '.join(keys)}"
        )
    others = sorted({each.relation.name for each in found if each.relation is not None})
    hint = f"; {did_you_mean(relation, others, 'there are links of')}" if others else ""
    raise InputError(
        f"relation {relation!r}: dataset {dataset.name} has no links of this relation{hint};"
        f" `{shell_command('gnnloom', 'links', dataset.name, 'random', '--relation', relation)}` makes some"
    )


def _graph_of(dataset: Dataset, known: Mapping[str, str]) -> str | None:
    """The key of the graph of the chosen vertex data; None if there is only one graph with types.

    Raises:
        InputError: there are several graphs, and no vertex data are chosen.
        NotFoundError: there are no such vertex data.
    """
    infos = dataset.ingested_graphs()
    if sum(info.state == "complete" and info.is_typed for info in infos) < 2:
        return None
    if not known:
        raise InputError(
            f"{dataset.path}: several graphs with types; choose one by its vertex data (--vertex-data TYPE=KEY)"
        )
    name, key = next(iter(known.items()))
    return dataset.find("vertices", key, type=name).inputs["graph"]


def _only(dataset: Dataset, graph: TypedGraph, of_type: str) -> Vertices | None:
    """The only vertex data of a type; None if it has none.

    Raises:
        InputError: it has several.
    """
    of_graph = {"graph": dataset.origin(graph.artifact.key)}
    found = dataset.fitting("vertices", made_from=of_graph, type=of_type)
    if len(found) > 1:
        raise InputError(
            f"dataset {dataset.name} has several vertex data of type {of_type}; choose with --vertex-data"
            f" {of_type}=KEY: {describe_candidates(found)}"
        )
    return Vertices(Artifact(found[0].path)) if found else None


def _reverses(dataset: Dataset, graph: TypedGraph, *, plans: bool) -> Reverses:
    # Graphs with a union have one matrix for all relations.
    found = dataset.fitting("transpose", made_from={"graph": graph.artifact.key}, union="")
    if not found and plans:
        return UnstoredReverses(graph)
    if not found:
        raise NotFoundError(
            f"{graph.artifact.path}: the reverses of the relations are not stored; `gnnloom train {dataset.name}"
            " --reverse` stores them before it starts ranks, as gnnloom.loader(..., reverse=True) does"
        )
    return Reverses(Artifact(found[0].path), graph)


def _columns(relation: Relation | ReverseRelation) -> dict[str, int]:
    of = (relation.relation if isinstance(relation, ReverseRelation) else relation).whole
    if not of.edge_columns:
        # Columns with a single number per edge are in the blocks.
        return {name: 1 for name, has in (("weight", of.weighted), ("time", of.has_times)) if has}
    width = {name: of.artifact.record(f"{of.prefix}{name}").shape[1:] for name in of.edge_columns}
    return {name: int(np.prod(shape, dtype=np.int64)) for name, shape in width.items()}


@dataclass(frozen=True)
class TypedRows:
    """The vertex data of some vertices that are predicted.

    Attributes:
        vertices: (num_rows,) int64, in the order of the vertices that are predicted, or the first and the one after the
            last.
    """

    shards: TypedVertices
    vertices: NDArray[np.int64] | Span
    prefix = "."

    def __contains__(self, name: str) -> bool:
        return name in self.shards

    def read(self, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """(num_rows, ...) the rows of an array such as ``label``, converted to ``dtype`` if given."""
        stored = self.shards.arrays[name]
        if isinstance(self.vertices, tuple):
            return np.array(stored[slice(*self.vertices)], dtype)
        out = None if dtype is None else np.empty((len(self.vertices), *stored.shape[1:]), dtype)
        return take_rows(stored, self.vertices, out)

    def vertex(self) -> NDArray[np.int64]:
        """(num_rows,) int64 vertices."""
        return np.arange(*self.vertices) if isinstance(self.vertices, tuple) else self.vertices


@dataclass(frozen=True)
class OpenedTypes:
    """The predicted vertices, in one rank's view of the data."""

    shards: TypedVertices

    @property
    def inputs(self) -> Mapping[str, str]:
        return self.shards.inputs

    def vertex_rows(self, order: str, span: Span) -> TypedRows:  # noqa: ARG002 - there is one order
        return self.shards.rows(span)
