"""The graph of a recipe with relations: tables become a graph with types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.ingest.notes import log_notes
from gnnloom.pipeline.ingest.typed.notes import typed_notes
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph, typed_graph_key
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.formatting import readable_estimate
from gnnloom.workflows.recipe.found import Found
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class TypedGraphStage(Prepares):
    """Stores the tables of relations and vertices."""

    name = "graph"

    def key(self, found: Found) -> str:
        section = found.recipe.dataset
        with found.named_section("relations"):
            return typed_graph_key(found.recipe.tables(), section.options(), section.typed_options())

    def prepare(self, found: Found, dataset: Dataset, cluster: Cluster) -> None:
        section = found.recipe.dataset
        how = section.options(), section.typed_options(), cluster
        # Another recipe may keep another graph in this dataset.
        graph = ingest_typed_graph(dataset, found.recipe.tables(), *how, allow_others=True)
        log_notes(typed_notes(graph))

    def needs(self, inputs: StageInputs) -> StageNeeds:
        found = inputs.typed_ingest
        return StageNeeds(
            memory=found.peak_memory,
            disk=found.output_bytes,
            scratch=found.spill_bytes,
            seconds=found.work,
            note=f"{readable_estimate(found.vertices)} vertices and {readable_estimate(found.edges)} edges",
        )
