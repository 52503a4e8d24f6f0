"""Links: edges that are held out of the graph for later stages, or out of one of its relations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.links.options import DrawOptions, links_key, relation_links_key
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.formatting import readable_estimate
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class LinksStage(Prepares[DrawOptions]):
    """Draws the links, and stores the graph without them."""

    given_by = "links"

    def key(self, found: RecipeFacts, options: DrawOptions) -> str:
        return links_key(found.keys["graph"], options)

    def is_done(self, found: RecipeFacts, options: DrawOptions, key: str) -> bool:
        # Links are done only when the graph without them also exists.
        return found.has(self.name, key) and found.has("graph", found.with_key(self.name, key).read_graph)

    def prepare(self, found: RecipeFacts, options: DrawOptions, dataset: Dataset, cluster: Cluster) -> None:
        from gnnloom.pipeline.links.stage import draw_links

        draw_links(dataset, dataset.graph(found.keys["graph"]), options, cluster)

    def needs(self, inputs: StageInputs, options: DrawOptions) -> StageNeeds:
        from gnnloom.pipeline.links.projection import link_phases

        graph = inputs.ingested
        has_times = graph.has_times or options.times is not None
        planned = link_phases(graph, options, inputs.found.cluster.memory, {}, has_times=has_times)
        held_out = readable_estimate(graph.nnz - inputs.graph.nnz)
        return StageNeeds.of_plan(planned, f"{held_out} entries held out; disk space before compression")


class RelationLinksStage(LinksStage):
    """Draws the links of a relation, and stores the graph without them."""

    def key(self, found: RecipeFacts, options: DrawOptions) -> str:
        return relation_links_key(found.keys["graph"], options)

    def prepare(self, found: RecipeFacts, options: DrawOptions, dataset: Dataset, cluster: Cluster) -> None:
        from gnnloom.pipeline.links.relation.stage import draw_relation_links

        relation = dataset.typed_graph(found.keys["graph"]).relation(options.relation or "")
        draw_relation_links(dataset, relation, options, cluster)

    def needs(self, inputs: StageInputs, options: DrawOptions) -> StageNeeds:
        from gnnloom.pipeline.links.relation.projection import relation_phases

        found, relation = inputs.typed_ingest, options.relation or ""
        # An upper bound: as if the relation had all edges, and its types all vertices.
        total, blocks = (found.vertices, found.edges), max(1, found.blocks)
        sizes = GraphSizes.even(*total, symmetric=False, weighted=False, num_blocks=blocks, stored_bytes=0)
        planned = relation_phases(sizes, options, relation, has_loops=True)
        edges = readable_estimate(found.edges)
        return StageNeeds.of_plan(planned, f"edges of {relation} held out; as if it had all {edges} edges")
