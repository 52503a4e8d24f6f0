"""Finds the stages of a recipe, with the keys of their results, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.storage.errors import IncompleteError, InputError
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.recipe import Recipe
from gnnloom.workflows.recipe.stages import STAGES, TYPED_STAGES
from gnnloom.workflows.recipe.stages.stage import OnRanks, Prepares, RecipeStage, Stage


@dataclass(frozen=True)
class RecipeStages:
    """The requested stages, and whether each stage is done.

    Attributes:
        found: the recipe, and the keys of all its stages, including stages that were not requested.
    """

    stages: tuple[Stage, ...]
    found: RecipeFacts

    @property
    def preparation(self) -> list[tuple[Prepares[Any], Stage]]:
        """The stages before the stages of the ranks."""
        return [(stage.kind, stage) for stage in self.stages if isinstance(stage.kind, Prepares)]

    @property
    def on_ranks(self) -> list[tuple[OnRanks[Any], Stage]]:
        """Propagation, training and prediction."""
        return [(stage.kind, stage) for stage in self.stages if isinstance(stage.kind, OnRanks)]

    @property
    def needs_preparation(self) -> bool:
        return any(not stage.is_done for _, stage in self.preparation)

    @property
    def needs_ranks(self) -> bool:
        return any(not stage.is_done for _, stage in self.on_ranks)

    def within(self, first: str | None, last: str | None) -> RecipeStages:
        """Keep the stages from ``first`` to ``last``.

        Raises:
            InputError: the recipe has no such stage, or ``last`` comes before ``first``.
            IncompleteError: a stage before ``first`` is not done.
        """
        names = [stage.name for stage in self.stages]
        for option, name in (("--from", first), ("--until", last)):
            if name is not None and name not in names:
                raise InputError(f"{option} {name}: the stages of this recipe are {', '.join(names)}")
        begin = names.index(first) if first else 0
        end = names.index(last) + 1 if last else len(names)
        if end <= begin:
            raise InputError(f"--from {first} --until {last}: {last} comes before {first}; the order is {names}")
        undone = [stage.name for stage in self.stages[:begin] if not stage.is_done]
        if undone:
            raise IncompleteError(f"--from {first}: {', '.join(undone)} not done yet; run once without --from")
        return replace(self, stages=self.stages[begin:end])


def find_stages(recipe: Recipe, cluster: ClusterOptions, *, restart: bool = False) -> RecipeStages:
    """Find the result of every stage of a recipe, and whether the stage is done. Runs nothing.

    Args:
        cluster: its memory per worker decides how deep the multilevel partitioner coarsens.
        restart: start the training run over, so the stage counts as not done in any case.

    Raises:
        InputError, NotFoundError: the file of a source does not exist, or has unexpected contents.
    """
    found, stages = RecipeFacts(recipe, cluster, {}, restart), list[Stage]()
    for name, place in (TYPED_STAGES if recipe.relations else STAGES).items():
        kind: RecipeStage[Any] = place.load()(name)
        if (options := kind.options(found)) is not None:
            key = kind.key(found, options)
            stages.append(Stage(kind, options, key, kind.is_done(found, options, key)))
            found = found.with_key(name, key) if kind.makes_artifact else found
    return RecipeStages(tuple(stages), found)
