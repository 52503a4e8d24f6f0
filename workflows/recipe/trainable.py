"""Checks whether a recipe's vertex data can be trained on."""

from __future__ import annotations

from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.trainer.tasks.registry import AUTO, task_of_data
from gnnloom.workflows.recipe.recipe import Recipe


def check_trainable(recipe: Recipe, key: str | None) -> None:
    """Check a recipe's vertex data if they are stored already.

    Args:
        key: key of the vertex data; None if the recipe has none.

    Raises:
        InputError: features or what the task predicts are missing, no vertex is in the training split, or there are
            more classes than the recipe says.
    """
    section = f"{recipe.source_name}: [vertices]"
    if key is None:
        raise InputError(f"{section}: the source comes without vertex data; set format, such as 'random' or 'files'")
    path = recipe.dataset_path / "vertices" / key
    if not (path / MANIFEST).exists():
        return
    vertices = Vertices(Artifact(path))
    task = task_of_data(recipe.train.task if recipe.train else AUTO, vertices.artifact, path)
    missing = [name for name in ("feature", task.array, "split") if name not in vertices.artifact]
    if missing:
        raise InputError(f"{section}: {', '.join(missing)} missing; training needs feature, label and split")
    if not vertices.artifact.facts["train"] or not task.width(vertices):
        raise InputError(f"{section}: no vertex to train on; some need both a label and the split 'train'")
    most = recipe.vertices.most_classes
    if most is not None and vertices.num_classes > most:
        raise InputError(
            f"{section} classes = {most}, but the labels go up to {vertices.num_classes - 1}; set classes to"
            f" {vertices.num_classes}, or fix the labels"
        )
