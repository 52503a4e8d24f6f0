"""Samples: batches that are drawn ahead of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.pipeline.samples.options import SampleOptions, samples_key
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.typed.typed_names import vertex_choices
from gnnloom.storage.catalog import Dataset
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class SamplesStage(Prepares[SampleOptions]):
    """Draws batches, if the recipe has a number of epochs for them."""

    given_by = "sampled"

    def key(self, found: RecipeFacts, options: SampleOptions) -> str:
        # A single rank owns all vertices, so its samples do not depend on a partition.
        read, inputs = ("graph", "vertices", *(("partition",) if options.ranks > 1 else ())), found.inputs
        return samples_key({kind: inputs[kind] for kind in read if kind in inputs}, options)

    def prepare(self, found: RecipeFacts, options: SampleOptions, dataset: Dataset, cluster: Cluster) -> None:
        from gnnloom.pipeline.samples.stage import write_samples

        partition = dataset.partition(key=found.keys["partition"]) if options.ranks > 1 else None
        write_samples(dataset, dataset.graph(found.read_graph), partition, options, cluster)

    def needs(self, inputs: StageInputs, options: SampleOptions) -> StageNeeds:
        note = "disk and memory: `gnnloom sample --plan`, once the graph exists"
        return StageNeeds(memory=inputs.found.cluster.memory, note=note)


class TypedSamplesStage(SamplesStage):
    """Draws batches of a graph with types; ranks take turns at the batches, so there is no partition."""

    def key(self, found: RecipeFacts, options: SampleOptions) -> str:
        keys = {"graph": found.read_graph}
        for name, key in self._vertex_data(found).items():
            keys["vertices" if name == options.of_type else f"vertices/{name}"] = key
        return samples_key(keys | ({"transpose": found.reverses} if options.reverse else {}), options)

    def prepare(self, found: RecipeFacts, options: SampleOptions, dataset: Dataset, cluster: Cluster) -> None:
        from gnnloom.pipeline.samples.stage import write_samples

        graph = dataset.typed_graph(found.read_graph)
        write_samples(dataset, graph, None, options, cluster, self._vertex_data(found))

    @staticmethod
    def _vertex_data(found: RecipeFacts) -> dict[str, str]:
        """Keys of the vertex data by type."""
        return found.type_vertices | vertex_choices(found.recipe.training.mode.vertex_data)
