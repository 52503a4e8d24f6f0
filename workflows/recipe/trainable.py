"""Whether a recipe's vertex data can be trained on."""

from __future__ import annotations

from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.workflows.recipe.recipe import Recipe


def check_trainable(recipe: Recipe, key: str | None) -> None:
    """Check a recipe's vertex data as soon as they can be seen; what is not made yet is not looked at.

    Args:
        key: of the vertices; None where the recipe has none.

    Raises:
        InputError: there are no features or labels, none to train on, or more classes than were said.
    """
    section = f"{recipe.source_name}: [vertices]"
    if key is None:
        raise InputError(f"{section}: nothing lies beside the edges; give a format, such as 'random' or 'files'")
    path = recipe.dataset_path / "vertices" / key
    if not (path / MANIFEST).exists():
        return
    vertices = Vertices(Artifact(path))
    labels = "multilabel" if vertices.has_multilabel else "label"
    lacking = [name for name in ("feature", labels, "split") if name not in vertices.artifact]
    if lacking:
        raise InputError(f"{section}: {', '.join(lacking)} missing; training needs all of feature, label and split")
    if not vertices.artifact.facts["train"] or not vertices.num_classes:
        raise InputError(f"{section}: no vertex to train on: a label and split 'train' are needed on some")
    most = recipe.vertices.most_classes
    if most is not None and vertices.num_classes > most:
        raise InputError(
            f"{section} classes = {most}, but the labels go up to {vertices.num_classes - 1}; set classes to"
            f" {vertices.num_classes}, or mend the labels"
        )
