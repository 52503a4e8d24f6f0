"""The data of a run on one type of a graph with types: there are no shards, every rank maps the graph and its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.artifacts.typed.typed_graph import Relation, ReverseRelation, TypedGraph, VertexType
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset, describe_candidates
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.vertex_arrays import missing_for_training
from gnnloom.storage.matrix.ranges import Span
from gnnloom.storage.wording import shell_command


@dataclass(frozen=True)
class TypedSchema:
    """The types and relations that predictions of one type depend on: those on a path of edges to this type.

    Attributes:
        of_type: type of the vertices that are predicted.
        counts: number of vertices of each type, in the order of the graph.
        widths: number of features of each type that has features, in this order.
        learned: the types whose features are learned.
        columns: for each relation (source type, name, target type), in the order of the graph, the columns of its
            edges: ``weight``, ``time``, ``feature`` or ``label``, and the width of the features, 1 for the others.
    """

    of_type: str
    counts: Mapping[str, int]
    widths: Mapping[str, int]
    columns: Mapping[tuple[str, str, str], Mapping[str, int]]
    learned: Sequence[str] = ()

    def learning(self, width: int) -> TypedSchema:
        """The same schema with learned features of a width for the types that have none; unchanged for width 0."""
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
    """The vertices of one type, and the graph around them; has the facts that shards have of their vertices.

    Attributes:
        of_type: type of the vertices that are predicted.
        stored: vertex data of each type that has some.
        reverses: the reverses of the relations, to gather along as well; None without.
    """

    dataset: Dataset
    graph: TypedGraph
    of_type: VertexType
    stored: Mapping[str, Vertices]
    reverses: Reverses | None

    @classmethod
    def open(
        cls,
        dataset: Dataset,
        of_type: str,
        keys: Mapping[str, str],
        *,
        chosen: Sequence[str] = (),
        reverse: bool = False,
    ) -> TypedVertices:
        """Open the graph and the vertex data.

        Args:
            keys: what a run has read before, as :attr:`inputs` has it; empty for a new run.
            chosen: choice between several vertex data of a type, as ``TYPE=KEY`` each, and so between several graphs.

        Raises:
            InputError: there are several graphs with types, or several vertex data of a type, and no choice; or the
                vertices of the type have no labels or no split.
            NotFoundError: there is no graph with types, no such type or vertex data, or no reverses although they are
                wanted.
        """
        known = {name.partition("/")[2] or of_type: key for name, key in keys.items() if name.startswith("vertices")}
        known |= _choices(chosen)
        graph = dataset.typed_graph(keys.get("graph") or _graph_of(dataset, known))
        stored = {name: dataset.vertices(key, graph.artifact.key, name) for name, key in known.items()}
        # A run that goes on reads what it has read, whatever other types have got since.
        for each in () if keys else graph.types:
            if each.name not in known and (data := _only(dataset, graph, each.name)) is not None:
                stored[each.name] = data
        reverses = _reverses(dataset, graph) if reverse else None
        found = cls(dataset, graph, graph.type(of_type), stored, reverses)
        found.check()
        return found

    def check(self) -> None:
        """Check that there is something to train on.

        Raises:
            InputError: the vertices of the type have no labels, or no split.
        """
        data = self.stored.get(self.of_type.name)
        missing = [name for name in missing_for_training(() if data is None else data.names) if name != "feature"]
        if missing:
            where = self.graph.artifact.path if data is None else data.artifact.path
            raise InputError(
                f"{where}: the vertices of type {self.of_type.name} have no {' and no '.join(missing)}; add them with"
                f" `{shell_command('gnnloom', 'features', self.dataset.name, '--of-type', self.of_type.name)} ...`"
            )

    def check_features(self) -> None:
        """Check that a model that reads features has some of every type.

        Raises:
            InputError: a type that predictions depend on has no features.
        """
        if not (lacking := self.schema.without_features):
            return
        name, dataset = lacking[0], self.dataset.name
        raise InputError(
            f"{self.graph.artifact.path}: the vertices of type {' and of type '.join(lacking)} have no features, and"
            f" {self.of_type.name} depends on them; add some with"
            f" `{shell_command('gnnloom', 'features', dataset, '--of-type', name)} ...`,"
            " learn some with `gnnloom train --embed WIDTH`, or let the model have vectors of its own: its forward then"
            " takes n_id_dict"
        )

    @property
    def artifact(self) -> Artifact:
        """The vertex data of the type."""
        return self.stored[self.of_type.name].artifact

    @property
    def inputs(self) -> dict[str, str]:
        """Kind to key of all that is read: ``vertices`` of the type, and ``vertices/TYPE`` of other types."""
        found = {"graph": self.graph.artifact.key, "vertices": self.artifact.key}
        others = [name for name in self.schema.counts if name in self.stored and name != self.of_type.name]
        found |= {f"vertices/{name}": self.stored[name].artifact.key for name in others}
        return found if self.reverses is None else found | {"transpose": self.reverses.artifact.key}

    @property
    def num_vertices(self) -> int:
        return self.of_type.count

    @property
    def num_features(self) -> int:
        return self.stored[self.of_type.name].num_features

    @property
    def num_classes(self) -> int:
        return self.stored[self.of_type.name].num_classes

    @property
    def num_targets(self) -> int:
        return self.stored[self.of_type.name].num_targets

    #: Columns of edges are for the model to use or not.
    weighted = False
    #: Rows and columns may be of different types.
    symmetric = False

    def __contains__(self, name: str) -> bool:
        return name in self.stored[self.of_type.name].names

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """(num_vertices, ...) the vertex data of the type, mapped."""
        return map_vertices(self.stored[self.of_type.name])

    @cached_property
    def schema(self) -> TypedSchema:
        """The types and relations that predictions of the type depend on."""
        relations: list[Relation | ReverseRelation] = list(self.graph.relations)
        if self.reverses is not None:
            relations += [self.graph.reverse(each.name) for each in self.graph.relations]
        names, added = set[str](), {self.of_type.name}
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
        return TypedSchema(self.of_type.name, counts, widths, columns)


def chosen_graph(dataset: Dataset, chosen: Sequence[str]) -> TypedGraph:
    """The graph of a new run; arguments and errors as for :meth:`TypedVertices.open`."""
    return dataset.typed_graph(_graph_of(dataset, _choices(chosen)))


def _graph_of(dataset: Dataset, known: Mapping[str, str]) -> str | None:
    """The key of the graph that chosen vertex data are of; None if there is only one graph with types.

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


def _choices(chosen: Sequence[str]) -> dict[str, str]:
    """Keys by type.

    Raises:
        InputError: an item is not ``TYPE=KEY``.
    """
    found = dict[str, str]()
    for item in chosen:
        name, equals, key = item.partition("=")
        if not (name and equals and key):
            raise InputError(f"vertex_data {item!r}: expected TYPE=KEY, such as paper=4e7a3d07")
        found[name] = key
    return found


def _only(dataset: Dataset, graph: TypedGraph, of_type: str) -> Vertices | None:
    """The only vertex data of a type; None if it has none.

    Raises:
        InputError: it has several.
    """
    found = dataset.fitting("vertices", made_from={"graph": graph.artifact.key}, type=of_type)
    if len(found) > 1:
        raise InputError(
            f"dataset {dataset.name} has several vertex data of type {of_type}; choose with --vertex-data"
            f" {of_type}=KEY: {describe_candidates(found)}"
        )
    return Vertices(Artifact(found[0].path)) if found else None


def _reverses(dataset: Dataset, graph: TypedGraph) -> Reverses:
    # Those with a union have one matrix for all relations.
    found = dataset.fitting("transpose", made_from={"graph": graph.artifact.key}, union="")
    if not found:
        raise NotFoundError(
            f"{graph.artifact.path}: the reverses of the relations are not stored; `gnnloom train {dataset.name}"
            " --reverse` stores them before it starts ranks, as gnnloom.loader(..., reverse=True) does"
        )
    return Reverses(Artifact(found[0].path), graph)


def _columns(relation: Relation | ReverseRelation) -> dict[str, int]:
    of = relation.relation if isinstance(relation, ReverseRelation) else relation
    if not of.edge_columns:
        # A single number of each edge is in the blocks.
        return {name: 1 for name, has in (("weight", of.weighted), ("time", of.has_times)) if has}
    width = {name: of.artifact.record(f"{of.prefix}{name}").shape[1:] for name in of.edge_columns}
    return {name: int(np.prod(shape, dtype=np.int64)) for name, shape in width.items()}


@dataclass(frozen=True)
class TypedRows:
    """The vertex data of some vertices of the type.

    Attributes:
        vertices: (num_rows,) int64 numbers within the type, or the first and the one after the last.
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
        return take_rows(stored, self.vertices).astype(dtype or stored.dtype, copy=False)

    def vertex(self) -> NDArray[np.int64]:
        """(num_rows,) int64 numbers within the type."""
        return np.arange(*self.vertices) if isinstance(self.vertices, tuple) else self.vertices


@dataclass(frozen=True)
class OpenedTypes:
    """The vertices of one type, as one rank sees the data."""

    shards: TypedVertices

    @property
    def inputs(self) -> Mapping[str, str]:
        return self.shards.inputs

    def vertex_rows(self, order: str, span: Span) -> TypedRows:  # noqa: ARG002 - there is one order
        return TypedRows(self.shards, span)
