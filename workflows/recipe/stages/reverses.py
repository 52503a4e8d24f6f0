"""The reverses of relations, which a training on a graph with types may gather along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.matrix_sort.reverses import reverse_relations, reverses_key
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.recipe.found import Found
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class ReversesStage(Prepares):
    """Stores the reverses of the relations that the training reads, if it asks for them."""

    name = "transpose"

    def key(self, found: Found) -> str | None:
        train, graph = found.recipe.train, found.keys["graph"]
        if train is None or not train.mode.reverse:
            return None
        return reverses_key(graph) if found.read_graph == graph else reverses_key(found.read_graph, graph)

    def prepare(self, found: Found, dataset: Dataset, cluster: Cluster) -> None:
        graph = dataset.typed_graph(found.read_graph)
        reverse_relations(dataset, graph, for_few(cluster, graph.nnz))

    def needs(self, inputs: StageInputs) -> StageNeeds:
        # At most: the sort of all edges again.
        found = inputs.typed_ingest
        return StageNeeds(
            memory=found.peak_memory, disk=found.output_bytes, scratch=found.spill_bytes, note="at most, as the graph"
        )
