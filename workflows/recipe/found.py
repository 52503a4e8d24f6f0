"""Collects what is known of a recipe before its stages run: the keys of their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from gnnloom.pipeline.links.stage import message_key
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.artifact import MANIFEST
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.recipe import Recipe
from gnnloom.workflows.recipe.sections import PropagateSection, SamplesSection
from gnnloom.workflows.recipe.trained_run import is_trained, name_run, run_of


@dataclass(frozen=True)
class Found:
    """Facts for finding a stage's output: the recipe, and the keys of the stages before.

    Attributes:
        memory: bytes per worker, which is part of the multilevel partitioner's key.
        keys: the key of each artifact of the stages before, by stage.
        restart: the training is to start over.
    """

    recipe: Recipe
    memory: int
    keys: Mapping[str, str]
    restart: bool = False

    def with_key(self, name: str, key: str) -> Found:
        """The same after one more stage that makes an artifact."""
        return replace(self, keys={**self.keys, name: key})

    @property
    def read_graph(self) -> str:
        """The key of the graph that the stages after the links read: without held-out edges, if there are any."""
        graph = self.keys["graph"]
        return message_key(graph, self.keys["links"]) if "links" in self.keys else graph

    @property
    def inputs(self) -> dict[str, str]:
        """Kind to key of what stages after the links read."""
        return {name: key for name, key in self.keys.items() if name != "links"} | {"graph": self.read_graph}

    @cached_property
    def config(self) -> TrainConfig:
        """The training of a recipe that trains, on the artifacts of the stages before, with the name of its run."""
        recipe, keys = self.recipe, self.keys
        if "samples" in keys:
            recipe = replace(
                recipe, train=recipe.training.with_options(samples=keys["samples"]), samples=SamplesSection()
            )
        if "propagated" in keys:
            train = recipe.training.with_options(propagated=keys["propagated"])
            recipe = replace(recipe, train=train, propagate=PropagateSection())
        return name_run(recipe, keys["shards"])

    @property
    def run(self) -> Run:
        """The run of the training, which may not exist yet."""
        return run_of(self.recipe, self.config)

    @cached_property
    def is_trained(self) -> bool:
        """Whether the run has finished the training of the recipe, which is not to start over."""
        return not self.restart and is_trained(self.run, self.config)

    def has(self, kind: str, key: str) -> bool:
        """Whether the dataset has an artifact; the manifest is written last, so one that has it is complete."""
        return (self.recipe.dataset_path / kind / key / MANIFEST).exists()

    @contextmanager
    def named_section(self, section: str) -> Iterator[None]:
        """Begin errors about a section's files and numbers with the recipe and the section."""
        try:
            yield
        except (InputError, NotFoundError) as error:
            # Keep the class of the error, as callers distinguish a missing file from a bad one.
            kind = NotFoundError if isinstance(error, NotFoundError) else InputError
            raise kind(f"{self.recipe.source_name}: [{section}] {error}") from error
