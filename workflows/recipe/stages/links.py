"""Links: edges that are held out of the graph that the later stages read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.links.stage import draw_links, links_key
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.formatting import readable_estimate
from gnnloom.workflows.recipe.found import Found
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class LinksStage(Prepares):
    """Draws the links, and stores the graph without them."""

    name = "links"

    def key(self, found: Found) -> str | None:
        links = found.recipe.links
        return None if links is None else links_key(found.keys["graph"], links)

    def is_done(self, found: Found, key: str) -> bool:
        # Links are done once the graph without them exists, too.
        return found.has(self.name, key) and found.has("graph", found.with_key(self.name, key).read_graph)

    def prepare(self, found: Found, dataset: Dataset, cluster: Cluster) -> None:
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
