"""What a recipe's stages make, named by their keys before anything runs, and which of it is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gnnloom.pipeline.ingest.stage import graph_key
from gnnloom.pipeline.ingest.vertices import vertices_key
from gnnloom.pipeline.partition.stage import partition_key
from gnnloom.pipeline.shards.grid_stage import grid_shards_key
from gnnloom.pipeline.shards.row_stage import row_shards_key
from gnnloom.pipeline.tasks.cluster import ClusterOptions
from gnnloom.pipeline.tasks.performance import check_report
from gnnloom.storage.errors import ExistsError, IncompleteError, InputError, NotFoundError
from gnnloom.storage.format.artifact import MANIFEST
from gnnloom.storage.runs.checkpoint import checkpoint_epochs
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.recipe import Recipe
from gnnloom.workflows.recipe.trainable import check_trainable

#: All stages, in order; a recipe may have no vertex data, partition or prediction.
STAGES = ("graph", "vertices", "partition", "shards", "train", "predict")
#: Those that train; the others prepare, on a Dask cluster.
TRAINING = ("train", "predict")


@dataclass(frozen=True)
class Step:
    """A stage of a plan; ``key`` names what it makes: an artifact, or a run."""

    stage: str
    key: str
    is_done: bool


@dataclass(frozen=True)
class Plan:
    """What a recipe's stages make, and which of it is there.

    Attributes:
        steps: those asked for.
        all_keys: of every artifact of the recipe.
        config: of the training, with the key of its shards and the run's name.
    """

    steps: tuple[Step, ...]
    all_keys: Mapping[str, str]
    config: TrainConfig

    def __contains__(self, stage: object) -> bool:
        return any(step.stage == stage for step in self.steps)

    @property
    def prepares(self) -> bool:
        """Some stage before training is not done."""
        return any(not step.is_done for step in self.steps if step.stage not in TRAINING)

    @property
    def trains(self) -> bool:
        """Some stage from the training on is not done."""
        return any(not step.is_done for step in self.steps if step.stage in TRAINING)

    def within(self, first: str | None, last: str | None) -> Plan:
        """The stages from ``first`` to ``last``.

        Raises:
            InputError: the recipe has no such stage, or they are in the wrong order.
            IncompleteError: a stage before ``first`` is not done.
        """
        names = [step.stage for step in self.steps]
        for option, name in (("--from", first), ("--until", last)):
            if name is not None and name not in names:
                raise InputError(f"{option} {name}: the stages of this recipe are {', '.join(names)}")
        begin = names.index(first) if first else 0
        end = names.index(last) + 1 if last else len(names)
        if end <= begin:
            raise InputError(f"--from {first} --until {last}: {last} comes before {first}; the order is {names}")
        undone = [step.stage for step in self.steps[:begin] if not step.is_done]
        if undone:
            raise IncompleteError(f"--from {first}: {', '.join(undone)} not done yet; run once without --from")
        return replace(self, steps=self.steps[begin:end])


@dataclass(frozen=True)
class Request:
    """What is to be run, as a user says it.

    Attributes:
        recipe: a file, or the name of a recipe that comes with gnnloom.
        catalog: folder of the datasets, where the recipe names none.
        settings: ``section.key=value``, which win over the file.
        cluster: ``local``, ``mpi``, an address or a scheduler file.
        first, last: the stages to begin and to end with.
        performance_report: HTML file for Dask's report, if wanted.
    """

    recipe: Path
    catalog: Path
    settings: tuple[str, ...] = ()
    cluster: str = "local"
    first: str | None = None
    last: str | None = None
    performance_report: Path | None = None

    def open(self) -> Job:
        """Read and check everything that can be known before anything runs.

        Raises:
            InputError, NotFoundError: the recipe, or a source that it names, cannot be used.
            ExistsError: the name that the recipe gives its run is another run's.
            IncompleteError: a stage before ``first`` is not done.
        """
        recipe = Recipe.read(self.recipe, self.catalog, self.settings)
        options = self._cluster_options(recipe)
        plan = make_plan(recipe, options.memory)
        _refuse_other_run(recipe, plan.config)
        if self.last != "graph":
            check_trainable(recipe, plan.all_keys.get("vertices"))
        return Job(recipe, plan.within(self.first, self.last), options)

    def _cluster_options(self, recipe: Recipe) -> ClusterOptions:
        options = replace(recipe.cluster.options(self.cluster), performance_report=self.performance_report)
        if options.performance_report is not None and options.workers == 0:
            raise InputError(
                f"{recipe.source_name}: [cluster] workers = 0, but --performance-report is of worker processes; set"
                " workers to 1 or more"
            )
        check_report(options.performance_report, options.workers)
        return options


@dataclass(frozen=True)
class Job:
    """A recipe, its plan, and where its stages run."""

    recipe: Recipe
    plan: Plan
    cluster: ClusterOptions


def make_plan(recipe: Recipe, memory: int) -> Plan:
    """Find out what a recipe's stages make and which of it is there; runs nothing.

    Args:
        memory: of a worker, which decides how deep the multilevel partitioner coarsens.

    Raises:
        InputError, NotFoundError: a source's file is not there, or not what it should be.
    """
    path = recipe.dataset_path
    keys = _artifact_keys(recipe, memory)
    steps = [Step(stage, key, (path / stage / key / MANIFEST).exists()) for stage, key in keys.items()]
    config = _train_config(recipe, keys["shards"])
    run = _run(recipe, config)
    steps.append(Step("train", run.name, _is_trained(run, config)))
    if recipe.predict is not None:
        steps.append(Step("predict", run.name, steps[-1].is_done and _is_predicted(run, recipe)))
    return Plan(tuple(steps), keys, config)


def _run(recipe: Recipe, config: TrainConfig) -> Run:
    return Run(recipe.dataset_path / "runs" / config.run_name)


def _refuse_other_run(recipe: Recipe, config: TrainConfig) -> None:
    """A run's name stands for one training of one graph."""
    run = _run(recipe, config)
    if not run.exists:
        return
    before, epochs = TrainConfig.of_run(run), _trained_epochs(run)
    changes = config.changes_since(before)
    if before.shards != config.shards:
        differs = "made from other shards"
    elif changes:
        differs = f"made with {', '.join(changes)}"
    elif epochs > config.epochs:
        differs = f"trained for {epochs} epochs already, more than {config.epochs}"
    else:
        return
    raise ExistsError(
        f"{run.path}: this run was {differs}; choose another name with --set train.run=..., or remove it"
        f" with `gnnloom catalog rm {recipe.dataset.name} --artifact runs/{run.name}`"
    )


def _trained_epochs(run: Run) -> int:
    return max(checkpoint_epochs(run.checkpoints), default=0)


def _artifact_keys(recipe: Recipe, memory: int) -> dict[str, str]:
    """The keys as the stages make them, from parameters and inputs alone."""
    with _reading(recipe, "source"):
        edges = recipe.source.open(undirected=recipe.dataset.undirected)
        keys = {"graph": graph_key(edges, recipe.dataset.options())}
    with _reading(recipe, "vertices"):
        identity = recipe.vertices.identity(recipe.source)
    if identity is not None:
        keys["vertices"] = vertices_key(identity, keys["graph"])
    if recipe.partition is not None:
        keys["partition"] = partition_key(keys["graph"], recipe.partition, memory)
    keys["shards"] = _shards_key(recipe, keys)
    return keys


@contextmanager
def _reading(recipe: Recipe, section: str) -> Iterator[None]:
    """Name the section in what is said of the files and numbers that it gives."""
    try:
        yield
    except (InputError, NotFoundError) as error:
        kind = NotFoundError if isinstance(error, NotFoundError) else InputError
        raise kind(f"{recipe.source_name}: [{section}] {error}") from error


def _shards_key(recipe: Recipe, inputs: Mapping[str, str]) -> str:
    partition = recipe.partition
    if recipe.grid is not None:
        return grid_shards_key(recipe.grid, inputs, *((partition.parts, partition.method) if partition else ()))
    if partition is None:
        raise InputError(f"{recipe.source_name}: row shards need a partition")
    return row_shards_key(partition.parts, partition.method, inputs)


def _train_config(recipe: Recipe, shards: str) -> TrainConfig:
    """The training of these shards; a run without a name is named by all that decides its result.

    More epochs go on with the run of fewer; fewer epochs than it has are another run, which leaves it as it is.
    """
    named = recipe.train.named_with_shards(shards)
    if recipe.train.run is not None:
        return named
    if _trained_epochs(_run(recipe, named)) <= named.epochs:
        return named
    return replace(named, run=f"{named.run}-{named.epochs}")


def _is_trained(run: Run, config: TrainConfig) -> bool:
    """The run has finished as many epochs of this configuration on these shards."""
    if not run.exists:
        return False
    try:
        before, epochs = TrainConfig.of_run(run), run.result()["epochs"]
    except IncompleteError:
        return False
    return before.identity() == config.identity() and before.shards == config.shards and epochs == config.epochs


def _is_predicted(run: Run, recipe: Recipe) -> bool:
    try:
        predictions = run.predictions()
    except NotFoundError:
        return False
    predict = recipe.predict
    if predict is None or predictions.facts.get("epoch") != recipe.train.epochs:
        return False
    return "embedding" in predictions or not (predict.embeddings and recipe.train.hidden)
