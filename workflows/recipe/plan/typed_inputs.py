"""The inputs of the stages of a recipe with relations: stored sizes, or estimates as if all relations were alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from gnnloom.pipeline.matrix_sort.union import UnionPlan
from gnnloom.pipeline.partition.settings import AUTO
from gnnloom.pipeline.shards.grid.typed_grid_plan import TypedGridPlaces, TypedGridPlan
from gnnloom.pipeline.shards.projection import ShardNeeds, typed_grid_needs
from gnnloom.pipeline.shards.relation_entries import EDGE_NUMBER, edge_columns
from gnnloom.pipeline.shards.rows.typed_stage import replicating_spec
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase import Phase, PhaseCount, count
from gnnloom.pipeline.tasks.sizes import GraphSizes, PartSizes, TypedSizes, VertexSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.typed.reverses import Reverses, reverses_of
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.typed.union import BOTH, FORWARD, UnionSpec
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.disk.work_folder import BESIDE
from gnnloom.storage.format.artifact import Artifact
from gnnloom.workflows.recipe.plan.stage_inputs import ASSUMED_CLASSES, StageInputs
from gnnloom.workflows.recipe.stages.stage import array_bytes


@dataclass(frozen=True)
class TypedStageInputs(StageInputs):
    """Inputs of every stage of a recipe with relations.

    The partition reads the union of the relations as an adjacency, so ``graph`` has the sizes of the union.
    """

    @cached_property
    def spec(self) -> UnionSpec:
        """The union that the partition reads; types that may be replicated automatically count as not replicated."""
        partition, stored = self.recipe.partition, self.stored_partition
        if partition is None:
            return UnionSpec()
        if stored is not None:
            return replicating_spec(stored)
        named = () if partition.replicate == (AUTO,) else partition.replicate
        types = tuple(name for name in self.sizes.types if name in named)
        return UnionSpec(BOTH if partition.reverse else FORWARD, types)

    @cached_property
    def sizes(self) -> TypedSizes:
        """The stored graph; before it exists, types and relations that share the projected sizes evenly.

        Raises:
            InputError: a table cannot be read.
            BudgetError: the ingest does not fit the memory or the disk.
        """
        if self._stored_types is not None:
            return TypedSizes.of(self._stored_types, self._reverses)
        found, recipe = self.typed_ingest, self.recipe
        ends = {each.name: (each.source, each.target) for each in recipe.relations}
        names = {*(name for pair in ends.values() for name in pair), *(each.type for each in recipe.lists)}
        types = dict.fromkeys(sorted(names), -(-found.vertices // len(names)))
        edges = -(-found.edges // len(ends))
        return TypedSizes.even(types, {name: (*pair, edges) for name, pair in ends.items()}, BESIDE.block_entries)

    @cached_property
    def graph(self) -> GraphSizes:
        """The union of the relations that the partition reads."""
        return self._union(self.spec)

    @cached_property
    def parts(self) -> PartSizes:
        """The stored partition, or what is expected of a random one."""
        partition, stored = self.recipe.partition, self.stored_partition
        if stored is not None:
            # One exchange serves all relations.
            return replace(PartSizes.of(stored), sent_back=())
        parts = partition.parts if partition is not None else 1
        entries = self.sizes.nnz * (2 if self.spec.direction == BOTH else 1)
        return PartSizes.at_random(self.graph, parts, self.sizes.types, entries)

    @property
    def partition_phases(self) -> list[PhaseCount]:
        """Phases of the tasks that unite the relations, unless this is done, and that make the partition."""
        return [*count(self._union_phases), *super().partition_phases]

    @property
    def partitioned_matrices(self) -> tuple[int, int, int]:
        """Memory, disk and scratch of the unions and, as a bound, of a second sort of all edges for the reverses."""
        phases = self._union_phases
        memory = BASE_MEMORY + max((phase.most_memory for phase in count(phases)), default=0)
        disk = array_bytes(phases)
        if self._reverses is not None:
            return memory, disk, 0
        sort = self.typed_ingest
        return max(memory, sort.peak_memory), disk + sort.output_bytes, sort.spill_bytes

    @property
    def _union_phases(self) -> list[Phase]:
        specs = (self.spec,) if self.spec.is_symmetric else (self.spec, self.spec.transposed)
        missing = [each for each in specs if self._stored_union(each) is None]
        return [phase for each in missing for phase in UnionPlan(self.sizes, each).phases()]

    @property
    def shard_phases(self) -> list[PhaseCount]:
        """Phases of the tasks that make the shards."""
        return super().shard_phases if self._grid is None else count(self._grid.phases())

    @cached_property
    def shard_needs(self) -> ShardNeeds:
        """Needs of making the shards, without the reverses of the relations."""
        return super().shard_needs if self._grid is None else typed_grid_needs(self._grid)

    @cached_property
    def _grid(self) -> TypedGridPlan | None:
        """The plan of grid shards; None for row shards."""
        grid = self.recipe.grid
        if grid is None:
            return None
        return TypedGridPlan(
            self.sizes, self._columns(), self._data, grid, self.found.cluster.memory, TypedGridPlaces()
        )

    @cached_property
    def _shard_source(self) -> ShardSource:
        return ShardSource.of_types(self.sizes, self.spec, self.graph, self._columns(), self._data)

    @cached_property
    def _transpose(self) -> GraphSizes | None:
        return None if self.spec.is_symmetric else self._union(self.spec.transposed)

    def _union(self, spec: UnionSpec) -> GraphSizes:
        stored = self._stored_union(spec)
        return self.sizes.union(spec) if stored is None else GraphSizes.of(stored)

    def _stored_union(self, spec: UnionSpec) -> Graph | None:
        if self._stored_types is None:
            return None
        made_from = {"graph": self.found.read_graph}
        stored = self.found.dataset.fitting("transpose", made_from=made_from, **spec.asked)
        return Graph(Artifact(stored[0].path)) if stored else None

    def _columns(self) -> Mapping[str, tuple[Column, ...]]:
        """The columns of the edges of each relation."""
        if self._stored_types is not None:
            return {each.name: edge_columns(each) for each in self._stored_types.relations}
        found = dict[str, tuple[Column, ...]]()
        for each in self.recipe.tables().relations:
            if each.columns is not None:
                own = (replace(column, lengths="nonzeros") for column in each.columns.arrays.values())
                found[each.name] = (*own, EDGE_NUMBER)
            elif getattr(each.edges, "weights", False):
                found[each.name] = (Column("weight", "float32", lengths="nonzeros"), EDGE_NUMBER)
        return found

    @cached_property
    def _data(self) -> Mapping[str, VertexSizes]:
        """The vertex data by type."""
        found = {}
        for name, key in self.found.type_vertices.items():
            if (stored := self.found.stored("vertices", key)) is not None:
                found[name] = VertexSizes.of(Vertices(stored))
                continue
            source = next(each.open(None) for each in self.recipe.tables().data if each.type == name)
            columns = source.num_columns("feature")
            found[name] = VertexSizes.plain(self.sizes.types[name], columns, ASSUMED_CLASSES)
        return found

    @cached_property
    def _reverses(self) -> Reverses | None:
        """The stored reverses of the relations, if they exist."""
        artifact = self.found.stored("transpose", self.found.reverses)
        return reverses_of(artifact) if artifact else None

    @cached_property
    def _stored_types(self) -> TypedGraph | None:
        """The graph that the stages after the links read."""
        artifact = self.found.stored("graph", self.found.read_graph)
        return TypedGraph(artifact) if artifact else None

    @cached_property
    def _stored_graph(self) -> Graph | None:
        """The union that the partition reads, if it is stored."""
        return self._stored_union(self.spec)
