"""The shards: the files that training ranks read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.shards.shard_keys import (
    grid_shards_key,
    row_shards_key,
    typed_grid_inputs,
    typed_grid_shards_key,
    typed_inputs,
    typed_row_shards_key,
)
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.sections import ShardsSection
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class ShardsStage(Prepares[ShardsSection]):
    """Writes row shards, or grid shards."""

    def options(self, found: RecipeFacts) -> ShardsSection | None:
        return found.recipe.shards if found.recipe.makes_shards else None

    def key(self, found: RecipeFacts, options: ShardsSection) -> str:
        recipe, partition = found.recipe, found.recipe.partition
        # A recipe with grid shards has a partition only if their permutation follows it.
        if recipe.grid is not None:
            ordering = (partition.parts, partition.method) if partition else ()
            return grid_shards_key(recipe.grid, found.inputs, *ordering)
        if partition is None:
            raise InputError(f"{recipe.source_name}: row shards need a partition")
        return row_shards_key(partition.parts, partition.method, found.inputs, options.reorder)

    def prepare(self, found: RecipeFacts, options: ShardsSection, dataset: Dataset, cluster: Cluster) -> None:
        from gnnloom.pipeline.shards.grid.grid_stage import shard_grid
        from gnnloom.pipeline.shards.rows.row_stage import shard_rows

        recipe, key = found.recipe, found.keys.get("partition")
        partition = dataset.partition(key=key) if key is not None else None
        vertices = dataset.vertices(found.keys["vertices"])
        if recipe.grid is not None:
            graph = dataset.graph(found.read_graph)
            shard_grid(dataset, graph, recipe.grid, cluster, vertices.artifact, partition)
        elif partition is not None:
            shard_rows(dataset, partition, cluster, vertices, options.reorder)

    def needs(self, inputs: StageInputs, options: ShardsSection) -> StageNeeds:
        needs = inputs.shard_needs
        return StageNeeds(
            memory=needs.peak_memory,
            disk=needs.output_bytes,
            scratch=needs.spill_bytes,
            seconds=inputs.shard_seconds,
            note=inputs.assumed_parts,
            phases=tuple(inputs.shard_phases),
        )


class TypedShardsStage(ShardsStage):
    """Writes the shards of a graph with types, if the recipe has the section."""

    def key(self, found: RecipeFacts, options: ShardsSection) -> str:
        recipe, partition = found.recipe, found.recipe.partition
        if recipe.grid is not None:
            return typed_grid_shards_key(recipe.grid, typed_grid_inputs(found.read_graph, found.type_vertices))
        if partition is None:
            raise InputError(f"{recipe.source_name}: row shards need a partition")
        inputs = typed_inputs(found.read_graph, found.keys["partition"], found.type_vertices)
        return typed_row_shards_key(
            partition.parts, partition.method, inputs, reverse=partition.reverse, replicate=partition.replicate
        )

    def prepare(self, found: RecipeFacts, options: ShardsSection, dataset: Dataset, cluster: Cluster) -> None:
        from gnnloom.pipeline.shards.grid.typed_grid_stage import shard_typed_grid
        from gnnloom.pipeline.shards.rows.typed_stage import shard_typed_rows

        # The dataset may have other vertex data for the same types.
        data = {name: dataset.vertices(key) for name, key in found.type_vertices.items()}
        if found.recipe.grid is not None:
            shard_typed_grid(dataset, dataset.typed_graph(found.read_graph), found.recipe.grid, cluster, data)
            return
        shard_typed_rows(dataset, dataset.partition(key=found.keys["partition"]), cluster, data)
