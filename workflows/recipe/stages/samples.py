"""Samples: batches that are drawn ahead of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.samples.stage import samples_key, write_samples
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.typed.typed_names import vertex_choices
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class SamplesStage(Prepares):
    """Draws batches, if the recipe has a number of epochs for them."""

    name = "samples"

    def key(self, found: RecipeFacts) -> str | None:
        sampled, inputs = found.recipe.sampled, found.inputs
        if sampled is None:
            return None
        # One rank owns all vertices, so its samples do not depend on a partition.
        read = ("graph", "vertices", *(("partition",) if sampled.ranks > 1 else ()))
        return samples_key({kind: inputs[kind] for kind in read if kind in inputs}, sampled)

    def prepare(self, found: RecipeFacts, dataset: Dataset, cluster: Cluster) -> None:
        sampled = found.recipe.sampled
        if sampled is not None:
            partition = dataset.partition(key=found.keys["partition"]) if sampled.ranks > 1 else None
            write_samples(dataset, dataset.graph(found.read_graph), partition, sampled, cluster)

    def needs(self, inputs: StageInputs) -> StageNeeds:
        note = "disk and memory: `gnnloom sample --plan`, once the graph exists"
        return StageNeeds(memory=inputs.cluster.memory, note=note)


class TypedSamplesStage(SamplesStage):
    """Draws batches of a graph with types; ranks take turns at the batches, so there is no partition."""

    def key(self, found: RecipeFacts) -> str | None:
        sampled = found.recipe.sampled
        if sampled is None:
            return None
        keys = {"graph": found.read_graph}
        for name, key in self._vertex_data(found).items():
            keys["vertices" if name == sampled.of_type else f"vertices/{name}"] = key
        return samples_key(keys | ({"transpose": found.reverses} if sampled.reverse else {}), sampled)

    def prepare(self, found: RecipeFacts, dataset: Dataset, cluster: Cluster) -> None:
        sampled = found.recipe.sampled
        if sampled is not None:
            graph = dataset.typed_graph(found.read_graph)
            write_samples(dataset, graph, None, sampled, cluster, self._vertex_data(found))

    @staticmethod
    def _vertex_data(found: RecipeFacts) -> dict[str, str]:
        """Keys of the vertex data by type."""
        return found.type_vertices | vertex_choices(found.recipe.training.mode.vertex_data)
