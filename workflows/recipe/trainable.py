"""Checks whether a recipe's vertex data can be trained on."""

from __future__ import annotations

from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.storage.format.vertex_arrays import missing_for_training
from gnnloom.workflows.recipe.recipe import Recipe


def check_trainable(recipe: Recipe, key: str | None) -> None:
    """Check a recipe's vertex data if they are stored already.

    Args:
        key: key of the vertex data; None if the recipe has none.

    Raises:
        InputError: features or labels are missing, no vertex is in the training split, or there are more classes than
            the recipe says.
    """
    section = f"{recipe.source_name}: [vertices]"
    if key is None:
        raise InputError(f"{section}: the source comes without vertex data; set format, such as 'random' or 'files'")
    path = recipe.dataset_path / "vertices" / key
    if not (path / MANIFEST).exists():
        return
    vertices = Vertices(Artifact(path))
    if missing := missing_for_training(vertices.names):
        raise InputError(f"{section}: {', '.join(missing)} missing; training needs feature, label and split")
    if not vertices.artifact.facts["train"] or not (vertices.num_classes or vertices.num_targets):
        raise InputError(f"{section}: no vertex to train on; some need both a label and the split 'train'")
    most = recipe.vertices.most_classes
    if most is not None and vertices.num_classes > most:
        raise InputError(
            f"{section} classes = {most}, but the labels go up to {vertices.num_classes - 1}; set classes to"
            f" {vertices.num_classes}, or fix the labels"
        )
