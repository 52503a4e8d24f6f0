"""The graph: edges of a source become an adjacency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.ingest.notes import graph_notes, log_notes
from gnnloom.pipeline.ingest.stage import graph_key, ingest_graph
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.formatting import readable_estimate
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.sections import DatasetSection
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class GraphStage(Prepares[DatasetSection]):
    """Stores the edges."""

    given_by = "dataset"

    def key(self, found: RecipeFacts, options: DatasetSection) -> str:
        with found.named_section("source"):
            return graph_key(found.recipe.source.open(undirected=options.undirected), options.options())

    def prepare(self, found: RecipeFacts, options: DatasetSection, dataset: Dataset, cluster: Cluster) -> None:
        edges, how = found.recipe.source.open(undirected=options.undirected), options.options()
        # Another recipe may keep another graph in this dataset: later stages name the graph that they read by key.
        graph = ingest_graph(dataset, edges, how, cluster, allow_others=True)
        log_notes(graph_notes(graph, edges, how))

    def needs(self, inputs: StageInputs, options: DatasetSection) -> StageNeeds:
        found, graph = inputs.ingest, inputs.ingested
        return StageNeeds(
            memory=found.peak_memory,
            disk=found.output_bytes,
            scratch=found.spill_bytes,
            seconds=found.work,
            note=f"{readable_estimate(graph.num_vertices)} vertices and {readable_estimate(graph.nnz)} entries",
            phases=tuple(inputs.graph_phases),
        )
