"""Links: edges that are held out of the graph that the later stages read, or of one of its relations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.links.relation.projection import relation_phases
from gnnloom.pipeline.links.relation.stage import draw_relation_links, kept_graph_key, relation_links_key
from gnnloom.pipeline.links.stage import draw_links, links_key
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase import count, temporary_bytes
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.formatting import readable_estimate
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class LinksStage(Prepares):
    """Draws the links, and stores the graph without them."""

    name = "links"

    def key(self, found: RecipeFacts) -> str | None:
        links = found.recipe.links
        return None if links is None else links_key(found.keys["graph"], links)

    def is_done(self, found: RecipeFacts, key: str) -> bool:
        # Links are done once the graph without them exists, too.
        return found.has(self.name, key) and found.has("graph", found.with_key(self.name, key).read_graph)

    def prepare(self, found: RecipeFacts, dataset: Dataset, cluster: Cluster) -> None:
        if found.recipe.links is not None:
            draw_links(dataset, dataset.graph(found.keys["graph"]), found.recipe.links, cluster)

    def needs(self, inputs: StageInputs) -> StageNeeds:
        phases = tuple(inputs.link_phases)
        disk, scratch = inputs.link_bytes
        held_out = inputs.ingested.nnz - inputs.graph.nnz
        return StageNeeds(
            memory=BASE_MEMORY + max(phase.most_memory for phase in phases),
            disk=disk,
            scratch=scratch,
            note=f"{readable_estimate(held_out)} entries held out; disk space before compression",
            phases=phases,
        )


class RelationLinksStage(Prepares):
    """Draws the links of a relation, and stores the graph without them."""

    name = "links"

    def key(self, found: RecipeFacts) -> str | None:
        links = found.recipe.links
        return None if links is None else relation_links_key(found.keys["graph"], links)

    def is_done(self, found: RecipeFacts, key: str) -> bool:
        links = found.recipe.links
        if links is None or links.relation is None:
            return True
        return found.has(self.name, key) and found.has(
            "graph", kept_graph_key(found.keys["graph"], key, links.relation)
        )

    def prepare(self, found: RecipeFacts, dataset: Dataset, cluster: Cluster) -> None:
        links = found.recipe.links
        if links is not None and links.relation is not None:
            relation = dataset.typed_graph(found.keys["graph"]).relation(links.relation)
            draw_relation_links(dataset, relation, links, cluster)

    def needs(self, inputs: StageInputs) -> StageNeeds:
        links, found = inputs.recipe.links, inputs.typed_ingest
        if links is None or links.relation is None:
            return StageNeeds()
        # At most: as if the relation had all edges, and its types all vertices.
        total, blocks = (found.vertices, found.edges), max(1, found.blocks)
        sizes = GraphSizes.even(*total, symmetric=False, weighted=False, num_blocks=blocks, stored_bytes=0)
        planned = relation_phases(sizes, links, links.relation, has_loops=True)
        phases = tuple(count(planned))
        return StageNeeds(
            memory=BASE_MEMORY + max(phase.most_memory for phase in phases),
            disk=sum(task.needs.writes for phase in planned if phase.makes_arrays for task in phase.tasks),
            scratch=temporary_bytes(planned),
            note=f"edges of {links.relation} held out; as if it had all {readable_estimate(found.edges)} edges",
            phases=phases,
        )
