"""Runs a recipe: the stages in order, each found by its key and skipped where it is done."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Any

from gnnloom.pipeline.cluster import Cluster, ClusterOptions
from gnnloom.pipeline.ingest import ingest_graph
from gnnloom.pipeline.partition import partition_graph
from gnnloom.pipeline.shard_grid import shard_grid
from gnnloom.pipeline.shard_rows import shard_rows
from gnnloom.pipeline.vertices import ingest_vertices
from gnnloom.storage.artifact import MANIFEST, Artifact, artifact_key
from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.errors import ExistsError, IncompleteError, InputError, NotFoundError
from gnnloom.storage.run import Run
from gnnloom.storage.vertices import Vertices
from gnnloom.trainer.config import TrainConfig
from gnnloom.trainer.launch import launch, launch_prediction
from gnnloom.workflows.predictions import write_predictions
from gnnloom.workflows.recipe import Recipe

logger = logging.getLogger(__name__)

#: All stages, in order; a recipe may have no vertex data, partition or prediction.
STAGES = ("graph", "vertices", "partition", "shards", "train", "predict")
#: Those that train; the others prepare, on a Dask cluster.
TRAINING = ("train", "predict")
#: The resolved recipe in a run's folder.
SAVED_RECIPE = "recipe.toml"


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
    """

    recipe: Path
    catalog: Path
    settings: tuple[str, ...] = ()
    cluster: str = "local"
    first: str | None = None
    last: str | None = None

    def open(self) -> Job:
        """Read and check everything that can be known before anything runs.

        Raises:
            InputError, NotFoundError: the recipe, or a source that it names, cannot be used.
            IncompleteError: a stage before ``first`` is not done.
        """
        recipe = Recipe.read(self.recipe, self.catalog, self.settings)
        options = recipe.cluster.options(self.cluster)
        plan = make_plan(recipe, options.memory)
        _refuse_others(recipe, plan)
        return Job(recipe, plan.within(self.first, self.last), options)


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
    path = recipe.catalog.expanduser().resolve() / recipe.dataset.name
    keys = _artifact_keys(recipe, memory)
    steps = [Step(stage, key, (path / stage / key / MANIFEST).exists()) for stage, key in keys.items()]
    config = _train_config(recipe, keys["shards"])
    run = Run(path / "runs" / config.run_name)
    steps.append(Step("train", run.name, _is_trained(run, config)))
    if recipe.predict is not None:
        steps.append(Step("predict", run.name, steps[-1].is_done and _is_predicted(run, recipe)))
    return Plan(tuple(steps), keys, config)


def _refuse_others(recipe: Recipe, plan: Plan) -> None:
    """A dataset has one graph and one set of vertex data; say so before anything runs."""
    catalog, name = Catalog(recipe.catalog), recipe.dataset.name
    if name not in catalog:
        return
    for kind, removal in (("graph", ""), ("vertices", " --artifact vertices/{key}")):
        for info in catalog[name].artifacts(kind):
            if info.key != plan.all_keys.get(kind) and (info.state == "complete" or kind == "graph"):
                raise ExistsError(
                    f"dataset {name} has a {kind} artifact already ({info.key}, {info.state}) that this recipe does not"
                    f" make: choose another name (--set dataset.name=...), or remove it with"
                    f" `gnnloom catalog rm {name}{removal.format(key=info.key)}`"
                )


def _artifact_keys(recipe: Recipe, memory: int) -> dict[str, str]:
    """The keys as the stages make them, from parameters and inputs alone."""
    edges = recipe.source.open(undirected=recipe.dataset.undirected)
    keys = {"graph": artifact_key("graph", recipe.dataset.options().parameters(edges), {})}
    inputs = dict(keys)
    identity = recipe.vertices.identity(recipe.source)
    if identity is not None:
        keys["vertices"] = artifact_key("vertices", {"source": identity}, inputs)
    sharded = dict(keys)
    if recipe.partition is not None:
        parameters = recipe.partition.parameters(memory)
        keys["partition"] = sharded["partition"] = artifact_key("partition", parameters, inputs)
    keys["shards"] = artifact_key("shards", _shard_parameters(recipe), sharded)
    return keys


def _shard_parameters(recipe: Recipe) -> dict[str, Any]:
    if recipe.partition is not None:
        return {"layout": "row", "parts": recipe.partition.parts, "method": recipe.partition.method}
    return {**asdict(recipe.shards), "grid": list(recipe.shards.grid)}


def _train_config(recipe: Recipe, shards: str) -> TrainConfig:
    """The training of these shards; a run without a name is named by all that decides its result."""
    config = replace(recipe.train, shards=shards)
    if config.run is not None:
        return config
    decides = [config.identity(), shards, config.algorithm, config.ranks, config.grid]
    digest = sha256(dumps(decides, sort_keys=True).encode()).hexdigest()[:8]
    return replace(config, run=f"{config.model}-{config.algorithm}-{config.ranks}-{digest}")


def _is_trained(run: Run, config: TrainConfig) -> bool:
    """The run has finished as many epochs of this configuration on these shards."""
    if not run.exists:
        return False
    try:
        before, epochs = TrainConfig.from_json(run.config()), run.result()["epochs"]
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
    if predict.embeddings and len(recipe.train.hidden) and "embedding" not in predictions:
        return False
    return predict.out is None or Path(predict.out).exists()


def prepare(recipe: Recipe, plan: Plan, cluster: Cluster) -> None:
    """Run the stages of ``plan`` that come before training and are not done.

    Raises:
        GnnloomError: what a stage raises, or the vertex data do not fit the training.
    """
    work = _Work(recipe, plan, cluster)
    actions = {
        "graph": work.make_graph,
        "vertices": work.make_vertices,
        "partition": work.make_partition,
        "shards": work.make_shards,
    }
    for step in plan.steps:
        if step.stage in TRAINING:
            continue
        if step.is_done:
            logger.info("%s: there already (%s)", step.stage, step.key)
        else:
            with _timed(step):
                actions[step.stage]()
        if step.stage in {"graph", "vertices"}:
            work.check_vertices(step.stage)


@contextmanager
def _timed(step: Step) -> Iterator[None]:
    started = time.perf_counter()
    logger.info("%s: begins", step.stage)
    yield
    logger.info("%s: done in %.1f s (%s)", step.stage, time.perf_counter() - started, step.key)


class _Work:
    """The stages before training, for one recipe."""

    def __init__(self, recipe: Recipe, plan: Plan, cluster: Cluster) -> None:
        self.recipe, self.plan, self.cluster = recipe, plan, cluster
        self.dataset = Catalog(recipe.catalog).create(recipe.dataset.name)

    def make_graph(self) -> None:
        edges = self.recipe.source.open(undirected=self.recipe.dataset.undirected)
        ingest_graph(self.dataset, edges, self.recipe.dataset.options(), self.cluster)

    def make_vertices(self) -> None:
        source = self.recipe.vertices.open(self.recipe.source, self.dataset.graph())
        if source is not None:
            ingest_vertices(self.dataset, source, self.cluster)

    def make_partition(self) -> None:
        if self.recipe.partition is not None:
            partition_graph(self.dataset, self.dataset.graph(), self.recipe.partition, self.cluster)

    def make_shards(self) -> None:
        if self.recipe.partition is None:
            shard_grid(self.dataset, self.dataset.graph(), self.recipe.shards.options(), self.cluster)
        else:
            key = self.plan.all_keys["partition"]
            shard_rows(self.dataset, self.dataset.partition(key=key), self.cluster)

    def check_vertices(self, stage: str) -> None:
        """Check as soon as it can be seen that there is something to train on.

        Raises:
            InputError: there are no features or labels, none to train on, or more classes than were said.
        """
        section = f"{self.recipe.source_name}: [vertices]"
        if "vertices" not in self.plan.all_keys:
            raise InputError(f"{section}: nothing lies beside the edges; give a format, such as 'random' or 'files'")
        if stage != "vertices":
            return
        vertices = Vertices(Artifact(self.dataset.path / "vertices" / self.plan.all_keys["vertices"]))
        lacking = [name for name in ("feature", "label", "split") if name not in vertices.artifact]
        if lacking:
            raise InputError(f"{section}: {', '.join(lacking)} missing; training needs all of feature, label and split")
        if not vertices.artifact.facts["train"] or not vertices.num_classes:
            raise InputError(f"{section}: no vertex to train on: a label and split 'train' are needed on some")
        most = self.recipe.vertices.most_classes
        if most is not None and vertices.num_classes > most:
            raise InputError(
                f"{section} classes = {most}, but the labels go up to {vertices.num_classes - 1}; set classes to"
                f" {vertices.num_classes}, or mend the labels"
            )


def save_recipe(recipe: Recipe, config: TrainConfig) -> None:
    """Write the resolved recipe into the run's folder.

    Raises:
        InputError: the run's name belongs to a training on other shards.
    """
    run = Run(Catalog(recipe.catalog)[recipe.dataset.name].run_path(config.run_name))
    if run.exists and run.config().get("shards") != config.shards:
        raise InputError(f"{run.path}: this run was made from other shards; choose another name ([train] run)")
    run.path.mkdir(parents=True, exist_ok=True)
    aside = run.path / f".{SAVED_RECIPE}"
    aside.write_text(recipe.to_toml(), encoding="utf-8")
    aside.replace(run.path / SAVED_RECIPE)


def train_here(recipe: Recipe, plan: Plan) -> None:
    """Run the training stages of ``plan`` that are not done, on new MPI ranks of this machine.

    Raises:
        LaunchError: the ranks failed, or were stopped (:class:`~gnnloom.trainer.launch.StoppedError`).
    """
    dataset = Catalog(recipe.catalog)[recipe.dataset.name]
    for step in plan.steps:
        if step.stage not in TRAINING:
            continue
        if step.is_done:
            logger.info("%s: there already (run %s)", step.stage, step.key)
            continue
        with _timed(step):
            if step.stage == "train":
                save_recipe(recipe, plan.config)
                launch(plan.config)
            else:
                launch_prediction(dataset, step.key, embeddings=bool(recipe.predict and recipe.predict.embeddings))
                write_output(recipe, dataset, step.key)


def write_output(recipe: Recipe, dataset: Dataset, run: str) -> None:
    """Write the predictions into the file that the recipe names, if it does."""
    if recipe.predict is not None and recipe.predict.out is not None:
        write_predictions(Run.open(dataset, run).predictions(), dataset.graph(), Path(recipe.predict.out))


def summary(recipe: Recipe, plan: Plan) -> dict[str, Any]:
    """What came of the stages of ``plan``: keys and digests of the artifacts, and the run's result."""
    dataset = Catalog(recipe.catalog)[recipe.dataset.name]
    digests = {
        step.stage: Artifact(dataset.path / step.stage / step.key).digest
        for step in plan.steps
        if step.stage not in TRAINING
    }
    keys = {step.stage: step.key for step in plan.steps}
    result = Run.open(dataset, plan.config.run_name).result() if "train" in plan else {}
    return {"dataset": dataset.name, "catalog": str(dataset.path.parent), "keys": keys, "digests": digests, **result}
