"""The reverses of relations, along which training on a graph with types may gather."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.storage.catalog import Dataset
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class ReversesStage(Prepares[TrainConfig]):
    """Stores the reverses of the relations that the training reads, if it asks for them."""

    def options(self, found: RecipeFacts) -> TrainConfig | None:
        train = found.recipe.train
        return train if train is not None and train.mode.reverse else None

    def key(self, found: RecipeFacts, options: TrainConfig) -> str:
        return found.reverses

    def prepare(self, found: RecipeFacts, options: TrainConfig, dataset: Dataset, cluster: Cluster) -> None:
        graph = dataset.typed_graph(found.read_graph)
        reverse_relations(dataset, graph, for_few(cluster, graph.nnz))

    def needs(self, inputs: StageInputs, options: TrainConfig) -> StageNeeds:
        # An upper bound: another sort of all edges.
        found = inputs.typed_ingest
        return StageNeeds(
            memory=found.peak_memory, disk=found.output_bytes, scratch=found.spill_bytes, note="at most, as the graph"
        )
