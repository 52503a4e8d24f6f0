"""The partition: the assignment of vertices to ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.partition.options import PartitionOptions, partition_key
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class PartitionStage(Prepares[PartitionOptions]):
    """Partitions the vertices, if the shards need a partition."""

    given_by = "partition"

    def key(self, found: RecipeFacts, options: PartitionOptions) -> str:
        return partition_key(found.read_graph, options, found.cluster.memory)

    def prepare(self, found: RecipeFacts, options: PartitionOptions, dataset: Dataset, cluster: Cluster) -> None:
        from gnnloom.pipeline.partition.stage import partition_graph

        partition_graph(dataset, dataset.any_graph(found.read_graph), options, cluster)

    def needs(self, inputs: StageInputs, options: PartitionOptions) -> StageNeeds:
        cost, (memory, disk, scratch) = inputs.partitioning, inputs.partitioned_matrices
        return StageNeeds(
            memory=max(cost.memory, memory),
            disk=4 * inputs.graph.num_vertices + disk,
            scratch=max(cost.disk, scratch),
            seconds=cost.cpu_seconds,
            note=f"{cost.method} {cost.preset}".strip(),
            phases=tuple(inputs.partition_phases),
        )
