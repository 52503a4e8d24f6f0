"""Opens a rank's data: its row shard, the grid shards of all ranks, one type's data, samples, propagated values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.propagated import Propagated
from gnnloom.storage.artifacts.samples import Samples, StoredSamples
from gnnloom.storage.artifacts.typed.typed_samples import TypedSamples
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.ranges import Span
from gnnloom.storage.runs.transfer import AllEdges, Transfer
from gnnloom.storage.shards.row_shards import RowShard, RowShards
from gnnloom.storage.wording import counted, shell_command

if TYPE_CHECKING:
    # A job on row shards need not load them.
    from gnnloom.storage.shards.grid_shards import GridShards
    from gnnloom.trainer.data.typed_vertices import OpenedTypes, TypedVertices

    #: Data that a run reads about a graph and its vertices.
    RunData: TypeAlias = RowShards | GridShards | TypedVertices

#: Alternatives to adding features.
LEARNED: Final = "; or learn features instead, with `gnnloom train --embed WIDTH`"


def missing_features(dataset: str) -> str:
    """End of an error about a dataset without features."""
    return f"; add features with `gnnloom features {dataset} ...`{LEARNED}"


def shards_of(data: RunData) -> RowShards | GridShards:
    """The shards of a run on a graph without types.

    Raises:
        TypeError: the graph has types.
    """
    from gnnloom.trainer.data.typed_vertices import TypedVertices  # noqa: PLC0415 - reads no torch, as this file

    if isinstance(data, TypedVertices):
        raise TypeError(f"{data.graph.artifact.path}: a graph with types has no shards")
    return data


class VertexRows(Protocol):
    """Some rows of the vertex data of shards."""

    @property
    def shards(self) -> RunData: ...

    @property
    def prefix(self) -> str:
        """Path of the rows inside the artifact, for messages."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """(num_rows, ...) the rows of an array such as ``feature``, converted to ``dtype`` if given."""
        ...

    def vertex(self) -> NDArray[np.int64]:
        """(num_rows,) int64 global ids."""
        ...


#: Inputs of shards that determine the result of a run.
_DATA: Final = ("graph", "vertices")
#: Inputs of shards that a run records.
_RECORDED: Final = (*_DATA, "links", "propagated")


@dataclass(frozen=True, kw_only=True)
class ShardRequest:
    """A choice of shards.

    Attributes:
        algorithm: algorithm that reads them.
        ranks: number of ranks that read them.
        key: key of the shards, if several fit.
        method: partitioner of the row shards; None for any.
        permutation: permutation of the grid shards; None for any.
        streams_adjacency: the adjacency stays on disk.
        made_from: inputs, kind to key, that the shards must have.
        of_type: type of the vertices of a run on a graph with types, which has no shards; None for shards, and for
        relation: the relation whose pairs a run on a graph with types predicts.
        links: key of the links of the relation, if there are several.
        vertex_data: choice between several vertex data of its types, as ``TYPE=KEY`` each.
        reverse: gather along the reverses of its relations, too.
        transfer: the transfer that made the run, if it was trained on another graph: it reads neither labels nor links.
        plans: the request is for a forecast, which does not need stored reverses.
    """

    algorithm: str
    ranks: int
    key: str | None = None
    method: str | None = None
    permutation: str | None = None
    streams_adjacency: bool = False
    made_from: Mapping[str, str] = field(default_factory=dict)
    of_type: str | None = None
    relation: str | None = None
    links: str | None = None
    vertex_data: Sequence[str] = ()
    reverse: bool = False
    transfer: Transfer | None = None
    plans: bool = False


class OpenedShards(Protocol):
    """Shards in one rank's view."""

    @property
    def shards(self) -> RunData:
        """The artifact that holds them, or the data of a type."""
        ...

    @property
    def inputs(self) -> Mapping[str, str]:
        """Kind to key of the inputs that a run records: the shards, and the inputs of the shards."""
        ...

    def vertex_rows(self, order: str, span: Span) -> VertexRows:
        """The vertex data of this rank's rows.

        Args:
            order: order of the vertices; the layout's rows are a range of it.
            span: first position in this order and the one after the last.
        """
        ...


@dataclass(frozen=True)
class OwnRowShard:
    """The row shard of one rank, whose rows are fixed."""

    shard: RowShard

    @property
    def shards(self) -> RowShards:
        return self.shard.shards

    @property
    def inputs(self) -> Mapping[str, str]:
        return _recorded(self.shards.artifact)

    def vertex_rows(self, order: str, span: Span) -> VertexRows:  # noqa: ARG002 - all rows of the shard
        return self.shard


@dataclass(frozen=True)
class GridRows:
    """A range of rows; reads nothing else.

    Attributes:
        order: order of the vertices: ``rows`` (Pr) or ``columns`` (Pc).
        span: first position in this order and the one after the last.
        counter: counts the bytes read.
    """

    shards: GridShards
    order: str
    span: Span
    counter: ReadCounter

    @property
    def prefix(self) -> str:
        return f"order/{self.order}"

    def __contains__(self, name: str) -> bool:
        return name in self.shards

    def read(self, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """(num_rows, ...) the rows of an array such as ``feature``, converted to ``dtype`` if given."""
        return self.shards.vertex_data(name, self.order, self.span, self.counter, dtype)

    def vertex(self) -> NDArray[np.int64]:
        """(num_rows,) int64 global ids of the rows' vertices."""
        return self.shards.vertex_ids(self.order, self.span, self.counter)


@dataclass(frozen=True)
class SharedGridShards:
    """Grid shards; every rank reads the parts that it needs."""

    shards: GridShards
    counter: ReadCounter

    @property
    def inputs(self) -> Mapping[str, str]:
        return _recorded(self.shards.artifact)

    def vertex_rows(self, order: str, span: Span) -> VertexRows:
        return GridRows(self.shards, order, span, self.counter)


def _recorded(shards: Artifact) -> dict[str, str]:
    return {kind: shards.inputs[kind] for kind in _RECORDED if kind in shards.inputs} | {"shards": shards.key}


Opened = TypeVar("Opened", bound=OpenedShards)


@dataclass(frozen=True)
class ShardKind(Generic[Opened]):
    """A kind of shards.

    Attributes:
        name: name in ``[shards] layout`` of a recipe.
        serves_any_ranks: the same shards serve any number of ranks.
        load_kernels: loads the compiled code for reading them.
        open: opens a rank's data, from the dataset, the request, the rank, the number of ranks and the counter of its
            bytes. Raises InputError if the shards or the request do not fit the number of ranks, NotFoundError if there
            are none; the message explains how to make them.
    """

    name: str
    serves_any_ranks: bool
    load_kernels: Callable[[], None]
    open: Callable[[Dataset, ShardRequest, int, int, ReadCounter], Opened]

    def of_run(self, dataset: Dataset, request: ShardRequest, inputs: Mapping[str, str]) -> ShardRequest:
        """A request for shards of the graph and the vertex data of a run.

        The run's own shards are chosen if they fit; otherwise the first key, because results differ only by rounding.

        Args:
            inputs: kind to key of the artifacts that the run has read.

        Returns:
            The request with a key, unless no shards fit.
        """
        made_from = {kind: inputs[kind] for kind in _DATA if kind in inputs}
        infos = dataset.fitting(
            "shards",
            made_from=made_from,
            layout=self.name,
            method=request.method,
            permutation=request.permutation,
            parts=None if self.serves_any_ranks else request.ranks,
        )
        fitting = [info.key for info in infos]
        own = [key for key in fitting if key == inputs.get("shards")]
        return replace(request, made_from=made_from, key=request.key or next(iter(own + fitting), None))


def _open_row_shard(
    dataset: Dataset, request: ShardRequest, rank: int, num_ranks: int, counter: ReadCounter
) -> OwnRowShard:
    # A key alone chooses the shards; if they are for another number of ranks, the check below reports it.
    parts = None if request.key else request.ranks
    try:
        shards = dataset.row_shards(
            parts=parts, key=request.key, counter=counter, method=request.method, made_from=request.made_from
        )
    except NotFoundError as error:
        raise NotFoundError(
            f"{error}; make some with {_commands(dataset, request, ROW_SHARDS)}, or start one rank per part (`--ranks`)"
        ) from error
    # All three must agree: a launcher may start a number of ranks that differs from the configuration.
    if not shards.num_parts == request.ranks == num_ranks:
        raise InputError(
            f"{shards.artifact.path}: shards for {counted(shards.num_parts, 'rank')}, but the run has {num_ranks}"
            f" (configured: {request.ranks}); start {counted(shards.num_parts, 'rank')} or run"
            f" `gnnloom shard {dataset.name} --parts {num_ranks}`"
        )
    return OwnRowShard(shards.shard(rank, counter, on_disk=request.streams_adjacency))


def _open_grid_shards(
    dataset: Dataset,
    request: ShardRequest,
    rank: int,  # noqa: ARG001 - every rank opens the same
    num_ranks: int,
    counter: ReadCounter,
) -> SharedGridShards:
    _check_number(request, num_ranks)
    try:
        shards = dataset.grid_shards(request.key, counter, permutation=request.permutation, made_from=request.made_from)
    except InputError as error:
        raise InputError(f"{error} (--shards KEY, or another --permutation)") from error
    except NotFoundError as error:
        raise NotFoundError(
            f"{error}; algorithm {request.algorithm} reads grid shards: make some with"
            f" {_commands(dataset, request, GRID_SHARDS)}"
        ) from error
    return SharedGridShards(shards, counter)


def _commands(dataset: Dataset, request: ShardRequest, kind: ShardKind[Any]) -> str:
    """The commands that make the requested shards."""
    name, ranks = dataset.name, str(request.ranks)
    method = ["--method", request.method] if request.method else []
    graph, permutation = _graph_option(dataset, request.made_from), request.permutation or "double"
    if kind.serves_any_ranks:
        parts = ["--parts", ranks] if permutation == "partition" else []
        words = [name, "--grid", "16x16", "--permutation", permutation, *parts]
    else:
        parts, words = ["--parts", ranks], [name, "--parts", ranks, *method]
    words += [*graph, *_vertices_option(dataset, request.made_from)]
    of_graph = {kind: key for kind, key in request.made_from.items() if kind == "graph"}
    if not parts or dataset.fitting("partition", made_from=of_graph, parts=request.ranks, method=request.method):
        return f"`{shell_command('gnnloom', 'shard', *words)}`"
    partition = ["gnnloom", "partition", name, *parts, *method, *graph]
    return f"`{shell_command(*partition)}` and `{shell_command('gnnloom', 'shard', *words)}`"


def _graph_option(dataset: Dataset, made_from: Mapping[str, str]) -> list[str]:
    """The option that chooses a graph; none for any graph, and for the only graph."""
    graph = made_from.get("graph")
    if graph is None or [info.key for info in dataset.ingested_graphs() if info.state == "complete"] == [graph]:
        return []
    return ["--links"] if dataset.message_graphs() == [graph] else ["--graph", graph]


def _vertices_option(dataset: Dataset, made_from: Mapping[str, str]) -> list[str]:
    """The option that chooses the vertex data; none for any data, and for the only data of the graph."""
    if "vertices" not in made_from:
        return []
    graph = dataset.origin(made_from["graph"])
    there = [info.key for info in dataset.artifacts("vertices") if info.inputs.get("graph") == graph]
    return [] if there == [made_from["vertices"]] else ["--vertices", made_from["vertices"]]


@dataclass(frozen=True)
class _TypedKind(ShardKind["OpenedTypes"]):
    """The vertices or pairs that a run on a graph with types predicts, and the graph around them."""

    def of_run(self, dataset: Dataset, request: ShardRequest, inputs: Mapping[str, str]) -> ShardRequest:  # noqa: ARG002
        """A request for the data of a run; its key is the key of the graph."""
        return replace(request, made_from=inputs, key=inputs.get("graph"))


def _open_types(
    dataset: Dataset,
    request: ShardRequest,
    rank: int,  # noqa: ARG001 - every rank opens the same
    num_ranks: int,
    counter: ReadCounter,  # noqa: ARG001 - everything is mapped
) -> OpenedTypes:
    # No other runs need them.
    from gnnloom.trainer.data.typed_vertices import OpenedTypes, TypedVertices, links_of_relation  # noqa: PLC0415

    _check_number(request, num_ranks)
    keys, relation, transfer = request.made_from, request.relation, request.transfer
    links: Links | None = None
    if relation is not None and transfer is not None:
        links = AllEdges(dataset.typed_graph(keys["graph"]), transfer, relation)
    elif relation is not None:
        links = links_of_relation(dataset, relation, request.links, keys.get("graph"))
    how: dict[str, Any] = {"chosen": request.vertex_data, "links": links}
    how |= {"reverse": request.reverse, "plans": request.plans}
    return OpenedTypes(TypedVertices.open(dataset, request.of_type, keys, **how, trains=transfer is None))


def _check_number(request: ShardRequest, num_ranks: int) -> None:
    """Check that the job has the ranks that were configured.

    Raises:
        InputError: the number of ranks differs.
    """
    if request.ranks != num_ranks:
        raise InputError(
            f"the job has {counted(num_ranks, 'rank')}, but {request.ranks} are configured; start"
            f" {counted(request.ranks, 'rank')} or set --ranks {num_ranks}"
        )


def _load_grid_kernels() -> None:
    from gnnloom.storage.shards.grid_window import load_kernels  # noqa: PLC0415 - row shards do not need it

    load_kernels()


# Row shards are read in their stored order.
ROW_SHARDS = ShardKind("row", serves_any_ranks=False, load_kernels=lambda: None, open=_open_row_shard)
GRID_SHARDS = ShardKind("grid", serves_any_ranks=True, load_kernels=_load_grid_kernels, open=_open_grid_shards)
#: A graph with types has no shards: ranks map it.
TYPED_VERTICES = _TypedKind("typed", serves_any_ranks=True, load_kernels=lambda: None, open=_open_types)


#: Values of options that stand for the values of the samples.
_DEFAULTS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "fanout": (),
        "batch_size": 1024,
        "replace": False,
        "draw_once": False,
        "neighbor_sampler": "uniform",
        "relation_fanout": (),
        "fanout_total": False,
    }
)


def open_samples(
    dataset: Dataset,
    options: Mapping[str, Any],
    num_layers: int,
    shards: Artifact,
    num_ranks: int,
    counter: ReadCounter,
    *,
    on_edges: bool = False,
) -> Samples:
    """Open the samples with the requested key.

    Args:
        options: the mode's options by name; options of the batches may be left at their defaults.
        shards: the row shards of the run.
        on_edges: the model takes all edges of a batch at once; there may be more hops than it has layers.

    Raises:
        NotFoundError: there are no samples with this key.
        InputError: the samples are for other ranks, other data or another model, or were drawn with other options.
    """
    samples = dataset.samples(options["samples"], counter)
    where = samples.artifact.path
    _check_ranks(samples, num_ranks)
    # One rank owns all vertices, so its samples are made without a partition.
    for kind, key in samples.artifact.inputs.items():
        if shards.inputs.get(kind) != key:
            raise InputError(
                f"{where}: made from {kind} {key}, but the shards {shards.key} from {shards.inputs.get(kind)}"
            )
    _check_samples(samples, options, samples.num_layers, num_layers, on_edges=on_edges)
    return samples


def open_typed_samples(
    dataset: Dataset,
    options: Mapping[str, Any],
    num_layers: int,
    read: Mapping[str, str],
    num_ranks: int,
    counter: ReadCounter,
) -> TypedSamples:
    """Open the samples of a graph with types that have the requested key; arguments and errors as of `open_samples`.

    Args:
        read: kind to key of the inputs of the run.
    """
    samples = dataset.typed_samples(options["samples"], counter)
    where, inputs = samples.artifact.path, samples.artifact.inputs
    _check_ranks(samples, num_ranks)
    for name, drawn in (("of_type", samples.of_type), ("reverse", samples.reverse)):
        if options[name] != drawn:
            raise InputError(f"{where}: drawn with {name} {drawn}, but the run has {name} {options[name]}")
    for kind, key in read.items():
        if inputs.get(kind) != key:
            raise InputError(f"{where}: made from {kind} {inputs.get(kind)}, but the run reads {key}")
    _check_samples(samples, options, samples.num_hops, num_layers, on_edges=True)
    return samples


def _check_ranks(samples: StoredSamples[Any], num_ranks: int) -> None:
    # Samples for other ranks also have another partition, but an error about the partition would be less clear.
    if samples.num_ranks != num_ranks:
        where = samples.artifact.path
        raise InputError(f"{where}: samples for {counted(samples.num_ranks, 'rank')}, but the run has {num_ranks}")


def _check_samples(
    samples: StoredSamples[Any],
    options: Mapping[str, Any],
    num_hops: int,
    num_layers: int,
    *,
    on_edges: bool,
) -> None:
    """Check that samples are for a run's model and its options.

    Raises:
        InputError: they do not match.
    """
    where = samples.artifact.path
    if num_hops != num_layers and not (on_edges and num_hops > num_layers):
        raise InputError(
            f"{where}: fan-outs {samples.fanouts} of {counted(num_hops, 'layer')}, but the model has"
            f" {counted(num_layers, 'layer')}"
        )
    for name, value in samples.drawn.items():
        if name in _DEFAULTS and options[name] not in (value, _DEFAULTS[name]):
            raise InputError(f"{where}: drawn with {name} {value}, but {options[name]} was asked for")


#: Step number of the features themselves.
FEATURES: Final = 0
#: The matrix from which the propagated values of a run on rows must come.
_PROPAGATED_OF: Final = "feature"


def find_propagated(dataset: Dataset, key: str | None, steps: Sequence[int], shards: Artifact) -> Propagated | None:
    """The propagated values that a run on rows reads; None if it reads only the features.

    Args:
        key: key of the values, if there are several.
        steps: as for :class:`gnnloom.trainer.data.stored_rows.StoredRows`; empty for all stored steps.
        shards: shards of the run.

    Raises:
        NotFoundError: there are no values with this key, or no values although steps are requested.
        InputError: there are several, or they belong to another graph or other features.
    """
    if steps and not any(steps):
        return None
    graph, vertices = shards.inputs["graph"], shards.inputs["vertices"]
    there = [info for info in dataset.artifacts("propagated") if info.state == "complete"]
    fitting = [
        info for info in there if info.inputs.get("graph") == graph and info.parameters.get("of") == _PROPAGATED_OF
    ]
    if not (fitting or key or steps):
        return None
    try:
        found = dataset.propagated(key, of=_PROPAGATED_OF, made_from={"graph": graph})
    except NotFoundError as error:
        again = f"`gnnloom propagate {dataset.name} --steps {max(steps, default=3)}`"
        raise NotFoundError(f"{error}; make some with {again}") from error
    made_from = found.artifact.inputs.get("vertices", vertices)
    if made_from != vertices:
        raise InputError(
            f"{found.artifact.path}: made from vertices {made_from}, but the shards {shards.key} from {vertices};"
            " propagate these, or shard again"
        )
    return found
