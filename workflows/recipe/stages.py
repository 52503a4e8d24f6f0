"""The stages of a recipe: what each makes, named by its key before anything runs, and whether it is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gnnloom.pipeline.ingest.stage import graph_key
from gnnloom.pipeline.ingest.vertices import vertices_key
from gnnloom.pipeline.links.stage import links_key, message_key
from gnnloom.pipeline.partition.stage import partition_key
from gnnloom.pipeline.samples.stage import samples_key
from gnnloom.pipeline.shards.grid.grid_stage import grid_shards_key
from gnnloom.pipeline.shards.rows.row_stage import row_shards_key
from gnnloom.storage.errors import IncompleteError, InputError, NotFoundError
from gnnloom.storage.format.artifact import MANIFEST
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.recipe import Recipe
from gnnloom.workflows.recipe.sections import PropagateSection, SamplesSection
from gnnloom.workflows.recipe.trained_run import is_predicted, is_trained, name_run, run_of

#: Names of all stages in order, artifacts by their kind. A recipe may have no vertex data, links, partition, samples,
#: propagated values, training or prediction.
STAGES = ("graph", "vertices", "links", "partition", "shards", "samples", "propagated", "train", "predict")
#: Stages that make a run, and no artifact.
TRAINING = ("train", "predict")
#: Stages of the ranks; those before them prepare, on a Dask cluster.
ON_RANKS = ("propagated", *TRAINING)


@dataclass(frozen=True)
class Stage:
    """A stage of a recipe; ``key`` names the artifact, or the run, that it makes."""

    name: str
    key: str
    is_done: bool


@dataclass(frozen=True)
class RecipeStages:
    """The stages that were asked for, and which of them are done.

    Attributes:
        all_keys: key of every artifact of the recipe, including stages that were not asked for.
        planned: the training, with the key of its shards and the name of its run; None if the recipe has none.
    """

    stages: tuple[Stage, ...]
    all_keys: Mapping[str, str]
    planned: TrainConfig | None

    def __contains__(self, name: object) -> bool:
        return any(stage.name == name for stage in self.stages)

    @property
    def config(self) -> TrainConfig:
        """The training of a recipe that trains.

        Raises:
            InputError: it has none.
        """
        if self.planned is None:
            raise InputError("the recipe has no section [train], so nothing is trained; add one")
        return self.planned

    @property
    def preparation(self) -> tuple[Stage, ...]:
        """The stages before those of the ranks."""
        return tuple(stage for stage in self.stages if stage.name not in ON_RANKS)

    @property
    def on_ranks(self) -> tuple[Stage, ...]:
        """Propagation, training and prediction."""
        return tuple(stage for stage in self.stages if stage.name in ON_RANKS)

    @property
    def artifacts(self) -> tuple[Stage, ...]:
        """The stages that make an artifact."""
        return tuple(stage for stage in self.stages if stage.name not in TRAINING)

    @property
    def needs_preparation(self) -> bool:
        return any(not stage.is_done for stage in self.preparation)

    @property
    def needs_ranks(self) -> bool:
        return any(not stage.is_done for stage in self.on_ranks)

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


def find_workload(recipe: Recipe, memory: int, *, restart: bool = False) -> RecipeStages:
    """Find what every stage of a recipe makes, and whether it is done. Runs nothing.

    Args:
        memory: bytes per worker, which decides how deep the multilevel partitioner coarsens.
        restart: the training is to start over, so it is not done, whatever its run has.

    Raises:
        InputError, NotFoundError: the file of a source does not exist, or is not what it should be.
    """
    path = recipe.dataset_path
    keys = artifact_keys(recipe, memory)
    # The manifest is written last, so an artifact that has one is complete.
    stages = [Stage(name, key, (path / name / key / MANIFEST).exists()) for name, key in keys.items()]
    # Links are done once the graph without them exists, too.
    has_graph = (path / "graph" / read_graph(keys) / MANIFEST).exists()
    stages = [replace(stage, is_done=stage.is_done and (stage.name != "links" or has_graph)) for stage in stages]
    if recipe.train is not None and "samples" in keys:
        recipe = replace(recipe, train=replace(recipe.train, samples=keys["samples"]), samples=SamplesSection())
    if recipe.train is not None and "propagated" in keys:
        train = replace(recipe.train, propagated=keys["propagated"])
        recipe = replace(recipe, train=train, propagate=PropagateSection())
    config = name_run(recipe, keys["shards"]) if recipe.train is not None else None
    if config is not None:
        run = run_of(recipe, config)
        stages.append(Stage("train", run.name, not restart and is_trained(run, config)))
        if recipe.predict is not None:
            # Predictions of an earlier training are stale until the training is done.
            stages.append(Stage("predict", run.name, stages[-1].is_done and is_predicted(run, recipe)))
    return RecipeStages(tuple(stages), keys, config)


def artifact_keys(recipe: Recipe, memory: int) -> dict[str, str]:
    """Compute the key of every artifact that a recipe makes, by stage, in the order of the stages.

    Args:
        memory: bytes per worker, which is part of the multilevel partitioner's key.

    Raises:
        InputError, NotFoundError: the file of a source does not exist, or is not what it should be.
    """
    with _named_section(recipe, "source"):
        edges = recipe.source.open(undirected=recipe.dataset.undirected)
        keys = {"graph": graph_key(edges, recipe.dataset.options())}
    with _named_section(recipe, "vertices"):
        identity = recipe.vertices.identity(recipe.source)
    if identity is not None:
        keys["vertices"] = vertices_key(identity, keys["graph"], recipe.vertices.storing())
    if recipe.links is not None:
        keys["links"] = links_key(keys["graph"], recipe.links)
    read_keys = {name: key for name, key in keys.items() if name != "links"} | {"graph": read_graph(keys)}
    if recipe.partition is not None:
        keys["partition"] = read_keys["partition"] = partition_key(read_keys["graph"], recipe.partition, memory)
    keys["shards"] = _shards_key(recipe, read_keys)
    if recipe.sampled is not None:
        # One rank owns all vertices, so its samples do not depend on a partition.
        read = ("graph", "vertices", *(("partition",) if recipe.sampled.ranks > 1 else ()))
        keys["samples"] = samples_key({kind: read_keys[kind] for kind in read if kind in keys}, recipe.sampled)
    if recipe.propagation is not None:
        keys["propagated"] = recipe.propagation.key(keys["shards"], read_keys)
    return keys


def read_graph(keys: Mapping[str, str]) -> str:
    """The key of the graph that the stages after the links read: without held-out edges, if there are any.

    Args:
        keys: the keys of the recipe's artifacts, by stage.
    """
    return message_key(keys["graph"], keys["links"]) if "links" in keys else keys["graph"]


@contextmanager
def _named_section(recipe: Recipe, section: str) -> Iterator[None]:
    """Begin errors about a section's files and numbers with the recipe and the section."""
    try:
        yield
    except (InputError, NotFoundError) as error:
        # Keep the class of the error, as callers distinguish a missing file from a bad one.
        kind = NotFoundError if isinstance(error, NotFoundError) else InputError
        raise kind(f"{recipe.source_name}: [{section}] {error}") from error


def _shards_key(recipe: Recipe, inputs: Mapping[str, str]) -> str:
    partition = recipe.partition
    # A recipe with grid shards has a partition only if their permutation follows it.
    if recipe.grid is not None:
        return grid_shards_key(recipe.grid, inputs, *((partition.parts, partition.method) if partition else ()))
    if partition is None:
        raise InputError(f"{recipe.source_name}: row shards need a partition")
    return row_shards_key(partition.parts, partition.method, inputs, recipe.shards.reorder)
