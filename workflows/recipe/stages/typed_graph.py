"""The graph of a recipe with relations: tables become a graph with types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.ingest.notes import log_notes, vertex_notes
from gnnloom.pipeline.ingest.typed.notes import typed_notes
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph, typed_graph_key
from gnnloom.pipeline.ingest.typed.type_vertices import ingest_type_vertices
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.formatting import readable_estimate
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.sections import DatasetSection
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class TypedGraphStage(Prepares[DatasetSection]):
    """Stores the tables of relations and vertices, and the vertex data in the tables of vertices."""

    given_by = "dataset"

    def key(self, found: RecipeFacts, options: DatasetSection) -> str:
        with found.named_section("relations"):
            return typed_graph_key(found.recipe.tables(), options.options(), options.typed_options())

    def is_done(self, found: RecipeFacts, options: DatasetSection, key: str) -> bool:
        return found.has(self.name, key) and all(
            found.has("vertices", each) for each in found.vertex_data(key).values()
        )

    def prepare(self, found: RecipeFacts, options: DatasetSection, dataset: Dataset, cluster: Cluster) -> None:
        how = options.options(), options.typed_options(), cluster
        # Another recipe may keep another graph in this dataset.
        tables = found.recipe.tables()
        graph = ingest_typed_graph(dataset, tables, *how, allow_others=True)
        data = ingest_type_vertices(dataset, graph, tables.data, cluster, VertexOptions(), allow_others=True)
        log_notes([*typed_notes(graph), *(note for each in data for note in vertex_notes(each))])

    def needs(self, inputs: StageInputs, options: DatasetSection) -> StageNeeds:
        found = inputs.typed_ingest
        return StageNeeds(
            memory=found.peak_memory,
            disk=found.output_bytes,
            scratch=found.spill_bytes,
            seconds=found.work,
            note=f"{readable_estimate(found.vertices)} vertices and {readable_estimate(found.edges)} edges",
        )
