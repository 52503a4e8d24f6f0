"""The inputs of a recipe's stages for projections: sizes of stored artifacts, and estimates of the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.ingest.preparation import preparation_phases
from gnnloom.pipeline.ingest.projection import IngestProjection, ingest_phases
from gnnloom.pipeline.ingest.stage import IngestOptions, project_ingest
from gnnloom.pipeline.ingest.typed.stage import project_typed_ingest
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.vertex_rows import stated_vertex_phases
from gnnloom.pipeline.links.projection import num_edges, without_links
from gnnloom.pipeline.matrix_sort.sort_plan import SortSizes
from gnnloom.pipeline.partition.cover_cost import with_cover_passes
from gnnloom.pipeline.partition.partition_plan import MethodProjection, partition_counts, project_methods
from gnnloom.pipeline.partition.partitioner import PartitionWorkload
from gnnloom.pipeline.shards.grid.grid_plan import GridPlaces, GridPlan
from gnnloom.pipeline.shards.projection import ShardNeeds, grid_needs, known_work, row_needs
from gnnloom.pipeline.shards.rows.row_plan import row_phases
from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces
from gnnloom.pipeline.shards.shard_source import ShardSource, find_transpose
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import threads_suffice
from gnnloom.pipeline.tasks.phase import PhaseCount, count
from gnnloom.pipeline.tasks.sizes import GraphSizes, PartSizes, VertexSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.disk.files import existing_folder
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.csr import TIME_BYTES, WEIGHT_BYTES, index_dtype
from gnnloom.storage.shards.grid_shards import GridShards
from gnnloom.storage.shards.grid_variants import stored_variants
from gnnloom.storage.shards.row_shards import RowShards
from gnnloom.trainer.config.propagation_plan import PropagationPlan, of_this_machine, plan_for, plan_of, propagation_of
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.propagation.memory import RankSizes, rank_sizes
from gnnloom.trainer.training.rehearsal.shard_sizes import GridSizes, RowShardSizes, RowSizes, ShardSizes, sizes_of
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.recipe import Recipe

#: Assumed number of classes if neither the recipe nor stored labels tell it.
ASSUMED_CLASSES = 64


def projected_ingest(
    source: EdgeSource, options: IngestOptions, folder: Path, cluster: ClusterOptions
) -> IngestProjection:
    """Projected needs of an ingest on a cluster.

    Args:
        folder: folder for the output; need not exist.

    Raises:
        InputError: the source cannot be read.
        BudgetError: the ingest does not fit the memory or the disk.
    """
    where = existing_folder(folder)
    found = project_ingest(source, options, where, cluster.tasks_at_once, cluster.memory)
    # An ingest makes the same choice if no number of workers was given.
    if cluster.kind == "local" and cluster.workers is None and threads_suffice(cluster.tasks_at_once, found.work):
        return found.in_one_process()
    return found


def projected_tables(
    tables: TypedTables, options: IngestOptions, folder: Path, cluster: ClusterOptions
) -> IngestProjection:
    """Projected needs of an ingest of a graph with types; arguments and errors as for :func:`projected_ingest`."""
    return project_typed_ingest(tables, options, existing_folder(folder), cluster.tasks_at_once, cluster.memory)


@dataclass(frozen=True)
class StageInputs:
    """Inputs of every stage. An artifact that does not exist is estimated from its inputs."""

    found: RecipeFacts

    @property
    def recipe(self) -> Recipe:
        return self.found.recipe

    @property
    def config(self) -> TrainConfig:
        """The configuration of the recipe's training run."""
        return self.found.config

    @cached_property
    def ingest(self) -> IngestProjection:
        """The projected ingest.

        Raises:
            InputError: the source cannot be read.
            BudgetError: it does not fit the memory or the disk.
        """
        recipe = self.recipe
        return projected_ingest(self._edges, recipe.dataset.options(), recipe.dataset_path, self.found.cluster)

    @cached_property
    def typed_ingest(self) -> IngestProjection:
        """The projected ingest of a recipe with relations; raises as :attr:`ingest`."""
        recipe = self.recipe
        return projected_tables(recipe.tables(), recipe.dataset.options(), recipe.dataset_path, self.found.cluster)

    @cached_property
    def _edges(self) -> EdgeSource:
        return self.recipe.source.open(undirected=self.recipe.dataset.undirected)

    @cached_property
    def graph(self) -> GraphSizes:
        """The graph that the stages after the links read: without held-out edges, if the recipe has links."""
        if self.recipe.links is None:
            return self.ingested
        if self._stored_graph is not None:
            return GraphSizes.of(self._stored_graph)
        return without_links(self.ingested, self.recipe.links)

    @cached_property
    def ingested(self) -> GraphSizes:
        """The stored graph of the source, or the projected result of the ingest."""
        stored = self._stored("graph")
        if stored is not None:
            return GraphSizes.of(Graph(stored))
        found, dataset = self.ingest, self.recipe.dataset
        return GraphSizes.even(
            found.vertices,
            # Self loops are entries, too.
            found.entries + (found.vertices if dataset.self_loops == "add" else 0),
            symmetric=dataset.undirected,
            weighted=found.weighted,
            has_times=found.has_times,
            num_blocks=found.blocks,
            stored_bytes=found.output_bytes,
        )

    @property
    def graph_phases(self) -> list[PhaseCount]:
        """Phases of the ingest's tasks, if the edges are spread evenly."""
        found, options = self.ingest, self.recipe.dataset.options()
        memory, sort = self.found.cluster.memory, options.sort
        value_bytes = WEIGHT_BYTES if found.weighted else TIME_BYTES if found.has_times else 0
        sizes = SortSizes.even(
            found.vertices,
            found.edges,
            found.ranges,
            memory,
            undirected=sort.undirected,
            value_bytes=value_bytes,
            marked=sort.marks(value_bytes),
        )
        compact = options.ids != "keep"
        phases = ingest_phases(sizes, sort, memory, compact=compact, name_bytes=found.name_bytes)
        return count([*preparation_phases(self._edges), *phases])

    @property
    def num_training_pairs(self) -> int | None:
        """Approximate number of training pairs; None for a task on vertices.

        Raises:
            InputError: a split gets no pair.
        """
        links = self.recipe.links
        if links is None or not self.config.task.on_pairs:
            return None
        total = num_edges(self.ingested)
        held_out, *further = links.ranks(total)[1:]
        return further[0] - held_out if further else total - held_out

    @property
    def vertex_phases(self) -> list[PhaseCount]:
        """Phases of the tasks that store the vertex data."""
        by_id, types = self.recipe.vertices.format == "keyed", self.vertices.types
        known = {array: kind for array, kind in types.items() if 0 not in kind[1]}
        return count(stated_vertex_phases(self.graph.num_vertices, known, self.found.cluster.memory, by_id=by_id))

    @property
    def partition_phases(self) -> list[PhaseCount]:
        """Phases of the tasks that make the partition, if any, and of the tasks that store and measure it.

        Raises:
            BudgetError: the memory leaves no room for buffers.
        """
        return partition_counts(
            self.graph,
            self._transpose or self.graph,
            self.recipe.partition,
            self.found.cluster.tasks_at_once,
            self.found.cluster.memory,
        )

    @property
    def partitioned_matrices(self) -> tuple[int, int, int]:
        """Bytes of memory, disk and scratch for the matrices that the partition stores first."""
        return 0, 0, 0

    @property
    def shard_phases(self) -> list[PhaseCount]:
        """Phases of the tasks that make the shards."""
        if self.recipe.grid is None:
            return count(row_phases(self._shard_source, self.parts, RowPlaces(), self.recipe.shards.reorder))
        memory = self.found.cluster.memory
        return count(GridPlan(self._shard_source, self.recipe.grid, memory, GridPlaces()).phases())

    @cached_property
    def vertices(self) -> VertexSizes:
        """Sizes of the stored vertex data, or sizes from the recipe or its files; no features if neither has any."""
        if self._stored_vertices is not None:
            return VertexSizes.of(self._stored_vertices)
        section = self.recipe.vertices
        # Synthetic data need the stored graph to be opened, but their sizes are keys of the recipe.
        if section.is_synthetic:
            given = {option.name: option.default for option in section.options()} | section.values()
            return VertexSizes.plain(self.graph.num_vertices, given["dim"], given["classes"], section.store)
        graph = self._stored_graph
        source = section.open(self.recipe.source, graph) if graph or section.format is None else None
        classes = section.classes or self.recipe.source.given.get("classes") or ASSUMED_CLASSES
        features = source.num_columns("feature") if source is not None else 0
        return VertexSizes.plain(self.graph.num_vertices, features, int(classes), section.store)

    @cached_property
    def partitioning(self) -> MethodProjection:
        """The projected cost of the partition.

        Raises:
            InputError: the recipe has none, or more parts than vertices.
        """
        options, memory = self.recipe.partition, self.found.cluster.memory
        if options is None:
            raise InputError(f"{self.recipe.source_name}: the recipe has no partition")
        if self._stored_graph is not None:
            found = project_methods(
                self._stored_graph,
                options.parts,
                worker_memory=memory,
                model=options.model,
                directions=options.directions,
                batches=options.batches,
                exchange=options.exchange,
                cover_passes=options.cover_passes,
            )
            return next(each for each in found if (each.method, each.preset) == (options.method, options.preset))
        directions = 2 if options.directions == "both" and not self.graph.symmetric else 1
        workload = PartitionWorkload(
            self.graph.num_vertices, self.graph.nnz, self.graph.symmetric, options.parts, options.model, directions,
            options.batches, memory, exchange=options.exchange, cover_passes=options.cover_passes,
        )  # fmt: skip
        preset = next(each for each in options.partitioner.presets if each.name == options.preset)
        cost = with_cover_passes(options.partitioner.cost(workload, preset), workload)
        return MethodProjection(
            options.method, options.preset, options.model, cost.memory, cost.disk, cost.cpu_seconds, fits=True,
            chosen=cost.chosen,
        )  # fmt: skip

    @cached_property
    def parts(self) -> PartSizes:
        """The stored partition, or the expected sizes of a random one."""
        partition, stored = self.recipe.partition, self.stored_partition
        if stored is not None:
            return PartSizes.of(stored)
        return PartSizes.at_random(self.graph, partition.parts if partition is not None else 1)

    @property
    def assumed_parts(self) -> str:
        """Assumption of the figures about a partition that does not exist yet, for display; empty if it exists."""
        is_random = self.recipe.grid is None and self.stored_partition is None
        return "exchange as for random parts, an upper bound" if is_random else ""

    @cached_property
    def _shard_source(self) -> ShardSource:
        return ShardSource(self.graph, self.vertices, self._transpose)

    @cached_property
    def _transpose(self) -> GraphSizes | None:
        """The stored transpose, if there is one."""
        found = find_transpose(self.found.dataset, self._stored_graph) if self._stored_graph is not None else None
        return GraphSizes.of(found) if found else None

    @cached_property
    def shard_needs(self) -> ShardNeeds:
        """Needs of making the shards."""
        source = self._shard_source
        grid, memory = self.recipe.grid, self.found.cluster.memory
        if grid is not None:
            return grid_needs(source, grid, memory)
        return row_needs(source, self.parts, self.recipe.shards.reorder)

    @cached_property
    def shard_seconds(self) -> float | None:
        """Processor seconds of earlier shards of the same layout and graph, if there are any."""
        if self._stored_graph is None:
            return None
        layout = "row" if self.recipe.grid is None else "grid"
        return known_work(self.found.dataset, layout, self._stored_graph.artifact.key)[0]

    @cached_property
    def has_inputs_of_training(self) -> bool:
        """Whether all inputs of the training run exist."""
        keys = self.found.keys
        return all(self._stored(kind) is not None for kind in ("shards", "samples", "propagated") if kind in keys)

    @property
    def num_inputs(self) -> int:
        """Number of matrices of feature width in the input of the model."""
        mode, propagation = self.recipe.training.mode, self.recipe.propagation
        if propagation is None:
            return 1
        return len(mode.steps) or 1 + len(propagation_of(propagation).stored)

    @property
    def propagation(self) -> PropagationPlan | None:
        """Plan of the ranks that propagate; None if the number of columns is not known.

        Raises:
            BudgetError: the memory is too small.
        """
        config, shards = self.recipe.propagation, self._stored("shards")
        if config is None:
            return None
        memory, threads = of_this_machine(config)
        if shards is not None:
            stored = RowShards(shards)
            return plan_of(config, stored, rank_sizes(stored), memory, threads)
        columns = self.vertices.num_features if config.matrix == "feature" else self.vertices.num_classes
        if not columns:
            return None
        parts = self.parts
        sizes = [
            RankSizes.expected(
                num_rows=own,
                num_halo=halo,
                num_sent=sent,
                nnz=nonzeros,
                dtype=self._index_dtype,
                is_sorted=self.recipe.shards.reorder == "none",
                weighted=self.graph.weighted,
            )
            for own, halo, sent, nonzeros in zip(
                parts.vertices, parts.received, parts.sent, parts.nonzeros, strict=True
            )
        ]
        return plan_for(config, self.graph.num_vertices, columns, sizes, memory, threads)

    @cached_property
    def shards(self) -> ShardSizes:
        """Sizes of the stored shards, or expected sizes from the graph and the partition."""
        stored = self._stored("shards")
        if stored is not None:
            shards = RowShards(stored) if self.recipe.grid is None else GridShards(stored)
            config = self.config
            return sizes_of(shards, config.task, config.algorithm.ranks, reads_features=not config.model.embed)
        return self._row_shards() if self.recipe.grid is None else self._grid_shards()

    @property
    def _num_outputs(self) -> int:
        """Width of the model's output; before vertex data exist, the width for one class per vertex."""
        stored, config = self._stored_vertices, self.config
        if config.task.on_pairs:
            return config.task.output_dim
        if stored is None:
            return self.vertices.num_classes
        return config.task.output_width(config.task.task_of(stored.artifact, stored, stored.artifact.path), stored)

    def _row_shards(self) -> RowSizes:
        graph, vertices, parts = self.graph, self.vertices, self.parts
        ranks = zip(parts.vertices, parts.sent, parts.received, parts.nonzeros, strict=True)
        read = self.shard_needs.output_bytes // len(parts.vertices)
        return RowSizes(
            num_vertices=graph.num_vertices,
            num_features=vertices.num_features,
            num_outputs=self._num_outputs,
            symmetric=graph.symmetric,
            weighted=graph.weighted,
            ranks=tuple(RowShardSizes(*sizes, read) for sizes in ranks),
            index_bytes=self._index_dtype.itemsize,
        )

    @property
    def _index_dtype(self) -> np.dtype[Any]:
        """The dtype of column ids of row shards."""
        return index_dtype(max(map(sum, zip(self.parts.vertices, self.parts.received, strict=True))))

    def _grid_shards(self) -> GridSizes:
        graph, vertices = self.graph, self.vertices
        is_double = self.recipe.shards.permutation == "double"
        variants = set(stored_variants(symmetric=graph.symmetric, double=is_double).values())
        order = vertices.stored_bytes + 8 * graph.num_vertices
        matrices = self.shard_needs.output_bytes - (2 if is_double else 1) * order
        return GridSizes(
            num_vertices=graph.num_vertices,
            num_features=vertices.num_features,
            num_outputs=self._num_outputs,
            symmetric=graph.symmetric,
            weighted=graph.weighted,
            nnz=graph.nnz,
            is_double=is_double,
            variant_bytes=dict.fromkeys(variants, max(0, matrices) // len(variants)),
            order_bytes=order,
        )

    def _stored(self, kind: str) -> Artifact | None:
        return self.found.stored(kind, self.found.keys.get(kind))

    @cached_property
    def _stored_graph(self) -> Graph | None:
        """The graph that the stages after the links read."""
        artifact = self.found.stored("graph", self.found.read_graph)
        return Graph(artifact) if artifact else None

    @cached_property
    def _stored_vertices(self) -> Vertices | None:
        artifact = self._stored("vertices")
        return Vertices(artifact) if artifact else None

    @cached_property
    def stored_partition(self) -> Partition | None:
        """The partition, if it exists."""
        artifact = self._stored("partition")
        return Partition(artifact) if artifact else None
