"""The partition: which rank has which vertices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.partition.stage import partition_graph, partition_key
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class PartitionStage(Prepares):
    """Partitions the vertices, if the shards need that."""

    name = "partition"

    def key(self, found: RecipeFacts) -> str | None:
        partition = found.recipe.partition
        return None if partition is None else partition_key(found.read_graph, partition, found.memory)

    def prepare(self, found: RecipeFacts, dataset: Dataset, cluster: Cluster) -> None:
        if found.recipe.partition is not None:
            partition_graph(dataset, dataset.any_graph(found.read_graph), found.recipe.partition, cluster)

    def needs(self, inputs: StageInputs) -> StageNeeds:
        cost, (memory, disk, scratch) = inputs.partitioning, inputs.partitioned_matrices
        return StageNeeds(
            memory=max(cost.memory, memory),
            disk=4 * inputs.graph.num_vertices + disk,
            scratch=max(cost.disk, scratch),
            seconds=cost.cpu_seconds,
            note=f"{cost.method} {cost.preset}".strip(),
            phases=tuple(inputs.partition_phases),
        )
