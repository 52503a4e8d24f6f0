"""The graph: edges of a source become an adjacency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.ingest.notes import graph_notes, log_notes
from gnnloom.pipeline.ingest.stage import graph_key, ingest_graph
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.formatting import readable_estimate
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class GraphStage(Prepares):
    """Stores the edges."""

    name = "graph"

    def key(self, found: RecipeFacts) -> str:
        recipe = found.recipe
        with found.named_section("source"):
            return graph_key(recipe.source.open(undirected=recipe.dataset.undirected), recipe.dataset.options())

    def prepare(self, found: RecipeFacts, dataset: Dataset, cluster: Cluster) -> None:
        section = found.recipe.dataset
        edges, options = found.recipe.source.open(undirected=section.undirected), section.options()
        # Another recipe may keep another graph in this dataset: later stages name the graph that they read by key.
        graph = ingest_graph(dataset, edges, options, cluster, allow_others=True)
        log_notes(graph_notes(graph, edges, options))

    def needs(self, inputs: StageInputs) -> StageNeeds:
        found, graph = inputs.ingest, inputs.ingested
        return StageNeeds(
            memory=found.peak_memory,
            disk=found.output_bytes,
            scratch=found.spill_bytes,
            seconds=found.work,
            note=f"{readable_estimate(graph.num_vertices)} vertices and {readable_estimate(graph.nnz)} entries",
            phases=tuple(inputs.graph_phases),
        )
