"""Features, labels and the split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gnnloom.pipeline.ingest.notes import log_notes, vertex_notes
from gnnloom.pipeline.ingest.vertex_tables import read_as_vertices
from gnnloom.pipeline.ingest.vertices import ingest_vertices, vertices_key
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted
from gnnloom.trainer.config.task_config import TaskConfig
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import Prepares, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class VerticesStage(Prepares[Mapping[str, Any]]):
    """Stores the vertex data, if the recipe or its source has some."""

    def options(self, found: RecipeFacts) -> Mapping[str, Any] | None:
        """The identity of the vertex data, which does not depend on the graph."""
        with found.named_section("vertices"):
            return found.recipe.vertices.identity(found.recipe.source)

    def key(self, found: RecipeFacts, options: Mapping[str, Any]) -> str:
        return vertices_key(options, found.keys["graph"], found.recipe.vertices.storing())

    def prepare(self, found: RecipeFacts, options: Mapping[str, Any], dataset: Dataset, cluster: Cluster) -> None:
        recipe = found.recipe
        graph = dataset.graph(found.keys["graph"])
        source = recipe.vertices.open(recipe.source, graph)
        if source is not None:
            stored = ingest_vertices(dataset, source, cluster, graph, options=recipe.vertices.storing())
            log_notes(vertex_notes(stored))
        # Fail now rather than after hours of partitioning.
        check_trainable(found)

    def needs(self, inputs: StageInputs, options: Mapping[str, Any]) -> StageNeeds:
        vertices = inputs.vertices
        features = counted(vertices.num_features, "feature") if vertices.num_features else "features not read yet"
        return StageNeeds(
            memory=inputs.found.cluster.memory,
            disk=vertices.stored_bytes,
            scratch=0,
            note=f"{features}; disk space before compression",
            phases=tuple(inputs.vertex_phases),
        )


def check_trainable(found: RecipeFacts) -> None:
    """Check that a recipe has vertex data and, if they are already stored, that a run can train on them.

    Raises:
        InputError: features or what the task predicts are missing, the weights of the classes do not fit them, no
            vertex is in the training split, or there are more classes than the recipe states.
    """
    recipe = found.recipe
    section = f"{recipe.source_name}: [vertices]"
    if "vertices" not in found.keys:
        reading = read_as_vertices(recipe.source.path[0]) if len(recipe.source.path) == 1 else None
        if reading is not None and reading.has_edges:
            keys = ", ".join(f'{name} = "{value}"' for name, value in reading.files.items())
            raise InputError(f'{section}: the source has vertex data; set format = "files", {keys}')
        raise InputError(f"{section}: the source comes without vertex data; set format, such as 'random' or 'files'")
    artifact = found.stored("vertices", found.keys["vertices"])
    if artifact is None:
        return
    vertices = Vertices(artifact)
    task = (recipe.train.task if recipe.train else TaskConfig()).task_of(artifact, vertices, artifact.path)
    learns = recipe.train is not None and recipe.train.model.embed > 0
    needed = [*([] if learns else ["feature"]), *task.arrays]
    missing = [name for name in needed if name not in artifact]
    if missing:
        instead = "; embed in [train] learns features instead" if missing == ["feature"] else ""
        raise InputError(f"{section}: {', '.join(missing)} missing; training needs {', '.join(needed)}{instead}")
    if not task.on_pairs and (not artifact.facts["train"] or not task.width(vertices)):
        raise InputError(f"{section}: no vertex to train on; some need both a label and the split 'train'")
    most = recipe.vertices.most_classes
    if most is not None and vertices.num_classes > most:
        raise InputError(
            f"{section} classes = {most}, but the labels go up to {vertices.num_classes - 1}; set classes to"
            f" {vertices.num_classes}, or fix the labels"
        )
