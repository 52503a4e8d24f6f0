"""Refuses keys of a recipe that change nothing, which a reader of the recipe would believe to matter."""

from __future__ import annotations

from collections.abc import Mapping

from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.config.fields import HasOptions
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.registry import MODELS
from gnnloom.workflows.recipe.sections import ShardsSection
from gnnloom.workflows.recipe.toml.document import Document, Mistakes

_ALGORITHM = ("train", "algorithm")
_MODEL = ("train", "model")
_PERMUTATION = ("shards", "permutation")
#: Orders of the vertices that a seed decides.
_KEYED = ("single", "double")


def unused_train_keys(train: TrainConfig) -> dict[str, str]:
    """Return the keys of ``[train]`` that the algorithm or the model ignores, each with the reason."""
    algorithm = train.algorithm.kind
    unused = {}
    for name, owners in _owners(ALGORITHMS).items():
        if algorithm.name not in owners:
            lacks = f"algorithm {algorithm.name} has no such option"
            unused[name] = f"{lacks}; remove the key, or choose [train] algorithm = {_quoted(owners)}"
    for name, owners in _owners(MODELS).items():
        if train.model.name not in owners:
            unused[name] = (
                f"model {train.model.name} has no such option; remove the key, or choose [train] model ="
                f" {_quoted(owners)}"
            )
    return unused


def _owners(kinds: Mapping[str, HasOptions]) -> dict[str, list[str]]:
    """The options of some descriptors, each with the names of the descriptors that have it."""
    owners: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        for option in kind.options:
            owners.setdefault(option, []).append(name)
    return owners


def refuse_unused_train_keys(document: Document, train: TrainConfig) -> None:
    """Refuse options of other algorithms and models.

    Raises:
        InputError: one was given; names its line.
    """
    models, mistakes = _owners(MODELS), Mistakes()
    for name, why in unused_train_keys(train).items():
        with mistakes.noted():
            document.refuse_unused("train", [name], why, [_MODEL if name in models else _ALGORITHM])
    mistakes.check()


def refuse_unused_shards_keys(document: Document, shards: ShardsSection, algorithm: str | None) -> None:
    """Refuse options of the other layout, and a seed that orders nothing.

    Args:
        algorithm: the algorithm that reads the shards; None if the recipe does not train.

    Raises:
        InputError: one was given; names its line.
    """
    if shards.layout == "row":
        able = _quoted([known.name for known in ALGORITHMS.values() if known.reads.name == "grid"])
        why = f"algorithm {algorithm} reads row shards; remove the key, or choose [train] algorithm = {able}"
        if algorithm is None:
            why = 'only grid shards have it; remove the key, or set layout = "grid"'
        document.refuse_unused("shards", ("grid", "permutation", "seed"), why, [_ALGORITHM, ("shards", "layout")])
    else:
        why = f"permutation {shards.permutation!r} is not random; remove the key, or choose {_quoted(_KEYED)}"
        document.refuse_unused("shards", unused_seed(shards), why, [_PERMUTATION])
        why = "only row shards have it; remove the key, or use permutation"
        document.refuse_unused("shards", ("reorder",), why, [_ALGORITHM, ("shards", "layout")])


def unused_seed(shards: ShardsSection) -> set[str]:
    """Return the key ``seed`` if no order of the grid shards depends on it."""
    return set() if shards.permutation in _KEYED else {"seed"}


def refuse_unused_partition(document: Document, shards: ShardsSection) -> None:
    """Refuse the section on the partition: the shards need none.

    Raises:
        InputError: the section has a key; names its line.
    """
    why = (
        f"grid shards with permutation {shards.permutation!r} need no partition; remove the section, or set [shards]"
        ' permutation = "partition"'
    )
    keys = document.sections.get("partition", {})
    document.refuse_unused("partition", keys, why, [_ALGORITHM, _PERMUTATION, ("shards", "layout")])


def _quoted(names: list[str] | tuple[str, ...]) -> str:
    return " or ".join(f'"{name}"' for name in names)
