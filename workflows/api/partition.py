"""Partitions graphs, and writes the shards that ranks read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, Unpack

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.grid.typed_grid_stage import shard_typed_grid
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.shards.rows.typed_stage import shard_typed_rows
from gnnloom.pipeline.shards.shard_options import check_typed_grid
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage import Graph, Partition, RowShards, TypedGraph, Vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import options_of
from gnnloom.storage.shards.grid_shards import GridShards
from gnnloom.storage.shards.typed_grid_shards import TypedGridShards
from gnnloom.storage.shards.typed_row_shards import TypedRowShards
from gnnloom.workflows.api.catalog import CatalogLike, DatasetLike, as_dataset
from gnnloom.workflows.api.cluster import CLUSTER, choose_cluster, on_cluster, once_per_job, stage_options
from gnnloom.workflows.api.options.keywords import ArtifactLike, check_known, key_of, with_options

if TYPE_CHECKING:
    from gnnloom.workflows.api.options.option_types import ClusterKeywords, PartitionKeywords

#: Links that choose a graph: True for the dataset's links, or links, or their key.
LinksLike = bool | ArtifactLike | None
#: Options of a partition besides the number of parts, which is an argument.
_OPTIONS = {name: option for name, option in options_of(PartitionOptions).items() if name != "parts"}


@with_options(_OPTIONS | CLUSTER)
def partition(
    dataset: DatasetLike,
    parts: int,
    *,
    graph: ArtifactLike | None = None,
    links: LinksLike = False,
    catalog: CatalogLike = None,
    **options: Unpack[PartitionKeywords],
) -> Partition:
    """Partition the vertices so that ranks exchange few rows, and measure the exchange.

    >>> found = gnnloom.partition("web", parts=2)
    >>> found.part().shape
    (200,)
    >>> found.quality["imbalance"] < 0.1
    True

    Args:
        dataset: the dataset or its name.
        parts: number of parts, one for each training rank.
        graph: the graph or its key, to choose between several.
        links: partition the graph without the edges that links hold out: True, or the links or their key if several
            hold out different edges.
        catalog: as for :func:`gnnloom.ingest`, as are the options of the workers.
        options: options of the partition, as in ``gnnloom partition --help-all``: ``quality``, ``method``, ``preset``,
            ``imbalance``, and more.

    Returns:
        The partition: ``part()`` is the part of every vertex, ``quality`` holds the measured figures.

    Raises:
        InputError: an option is unknown, or the method does not offer it.
        NotFoundError: the dataset or its graph does not exist.
        PartitionerError: the partitioner failed or ran out of time.
        BudgetError: the partitioner needs more memory than there is.
    """
    found = as_dataset(dataset, catalog)
    settings, cluster = stage_options("partition", options, PartitionOptions, _OPTIONS, parts)

    def make(opened: Cluster) -> Partition:
        return partition_graph(found, found.any_graph(graph_key(found, graph, links)), settings, opened)

    return once_per_job(lambda: on_cluster(cluster, make))


@with_options(CLUSTER)
def shard(
    dataset: DatasetLike,
    parts: int | None = None,
    *,
    grid: tuple[int, int] | None = None,
    method: str | None = None,
    partition: ArtifactLike | None = None,
    graph: ArtifactLike | None = None,
    links: LinksLike = False,
    vertices: ArtifactLike | None = None,
    permutation: str = GridOptions.permutation,
    seed: int = GridOptions.seed,
    reorder: str = "none",
    catalog: CatalogLike = None,
    **options: Unpack[ClusterKeywords],
) -> RowShards | TypedRowShards | GridShards | TypedGridShards:
    """Write the shards of a dataset: the files that each training rank reads.

    Row shards of a graph with types have a matrix for each relation, and one halo for all relations. Grid shards of
    such a graph have the blocks of each relation, and the data of each type.

    >>> found = gnnloom.partition("web", parts=2)
    >>> gnnloom.shard("web", parts=2)
    RowShards(2 parts of 200 vertices)

    Args:
        dataset: the dataset or its name.
        parts: number of parts of the partition of row shards, or of the partition that orders grid shards with
            ``permutation="partition"``.
        grid: grid shards: number of blocks of rows and of columns.
        method: method of the partition, if there are several.
        partition: the partition or its key, if there are several.
        graph: key of the graph, if there are several.
        links: shard the graph without the edges that links hold out, as for :func:`gnnloom.partition`.
        vertices: the vertex data to include or their key, if there are several; shards of a graph with types include
            all vertex data.
        permutation: order of rows and columns of grid shards: ``none``, ``single``, ``double`` or ``partition``.
        seed: seed of the permutation.
        reorder: order of the rows of row shards: ``none`` (by vertex id) or ``degree`` (largest first).
        catalog: as for :func:`gnnloom.ingest`, as are the options of the workers.

    Raises:
        InputError: the arguments describe neither row shards nor grid shards, or both; or ``reorder`` is given for grid
            shards.
        NotFoundError: the dataset, its vertex data or the partition does not exist.
    """
    found = as_dataset(dataset, catalog)
    cluster, others = choose_cluster(options)
    check_known("shard", others, CLUSTER)
    if (parts is None) == (grid is None or permutation == "partition"):
        raise InputError(
            "shard: give either parts, for row shards, or grid, for grid shards; give both with permutation='partition'"
        )
    if grid is not None and reorder != "none":
        raise InputError("shard: reorder is for row shards; grid shards have permutation")
    blocks = None if grid is None else GridOptions((grid[0], grid[1]), permutation, seed)
    keys = {"partition": key_of(partition), "graph": graph_key(found, graph, links), "vertices": key_of(vertices)}

    def make() -> RowShards | TypedRowShards | GridShards | TypedGridShards:
        return WantedShards.find(found, parts, blocks, method=method, **keys, reorder=reorder).write(cluster)

    return once_per_job(make)


def graph_key(dataset: StoredDataset, graph: ArtifactLike | None, links: LinksLike) -> str | None:
    """Key of the chosen graph, or of the graph without the edges that links hold out; None if the call chooses neither.

    Raises:
        InputError: the call chooses both, or there are links of several graphs.
        NotFoundError: there are no links.
    """
    if links is False or links is None:
        return key_of(graph)
    if graph is not None:
        raise InputError("--graph and --links both choose the graph; give one of them")
    return dataset.message_graph(None if links is True else key_of(links))


def find_partition(
    dataset: StoredDataset, parts: int, key: str | None, method: str | None, graph: Graph | TypedGraph | None = None
) -> Partition:
    """Find a partition by its parameters.

    Args:
        graph: the graph that was partitioned; None for any.

    Raises:
        NotFoundError: nothing matches; the message gives the command that makes it.
    """
    made_from = None if graph is None else {"graph": graph.artifact.key}
    return Partition(dataset.find("partition", key, made_from=made_from, parts=parts, method=method))


@dataclass(frozen=True)
class WantedShards:
    """Requested shards: grid shards or, without a grid, row shards of a partition.

    Attributes:
        partition: partition of row shards, or of grid shards with ``permutation="partition"``.
        vertices: vertex data to include; by default the graph's vertex data.
        reorder: order of the rows of row shards.
    """

    dataset: StoredDataset
    partition: Partition | None
    grid: GridOptions | None
    graph: Graph | TypedGraph | None
    vertices: Vertices | None
    reorder: str

    @classmethod
    def find(
        cls,
        dataset: StoredDataset,
        parts: int | None,
        grid: GridOptions | None,
        *,
        method: str | None,
        partition: str | None,
        graph: str | None,
        vertices: str | None,
        reorder: str,
        links: LinksLike = False,
    ) -> Self:
        """Find the inputs of shards by the given keys; ``links`` as for :func:`graph_key`.

        Raises:
            InputError: as :func:`graph_key`.
            NotFoundError: the graph, the vertex data or the partition does not exist.
        """
        key = graph_key(dataset, graph, links)
        chosen = dataset.any_graph(key) if key is not None else None
        ordering = None if parts is None else find_partition(dataset, parts, partition, method, chosen)
        data = dataset.vertices(vertices) if vertices is not None else None
        return cls(dataset, ordering, grid, chosen, data, reorder)

    @property
    def sharded(self) -> Graph | TypedGraph:
        """The graph to cut into shards.

        Raises:
            InputError: the dataset has several.
        """
        if self.partition is not None:
            return self.dataset.any_graph(self.partition.artifact.inputs["graph"])
        return self.dataset.any_graph(None) if self.graph is None else self.graph

    def check_types(self) -> None:
        """Refuse options that shards of a graph with types do not have.

        Raises:
            InputError: the call reorders rows, or chooses vertex data.
        """
        if self.reorder != "none":
            raise InputError(f"reorder {self.reorder}: rows of a graph with types stay in the order of their types")
        if self.vertices is not None:
            raise InputError("vertices: shards of a graph with types do not choose vertex data; leave it out")
        if self.grid is not None:
            check_typed_grid(self.grid)

    @property
    def parts(self) -> Partition:
        """The partition of row shards.

        Raises:
            InputError: there is no partition.
        """
        if self.partition is None:
            raise InputError("row shards need a partition")
        return self.partition

    def write(self, cluster: ClusterOptions) -> RowShards | TypedRowShards | GridShards | TypedGridShards:
        """Write the shards on a cluster that is open only during the call."""
        data, graph = self.vertices, self.sharded
        if isinstance(graph, TypedGraph):
            self.check_types()
        with open_cluster(cluster) as opened:
            if isinstance(graph, TypedGraph):
                if self.grid is not None:
                    return shard_typed_grid(self.dataset, graph, self.grid, opened)
                return shard_typed_rows(self.dataset, self.parts, opened)
            if self.grid is None:
                return shard_rows(self.dataset, self.parts, opened, data, self.reorder)
            artifact = data.artifact if data else None
            return shard_grid(self.dataset, graph, self.grid, opened, artifact, self.partition)
