"""Collects facts about a recipe before its stages run: the keys of their outputs, and the run that it trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.ingest.typed.type_vertices import TypeVertices, of_each_type
from gnnloom.pipeline.ingest.vertices import vertices_key
from gnnloom.pipeline.links.options import kept_graph_key, message_key
from gnnloom.pipeline.matrix_sort.reverses import reverses_key
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import ExistsError, IncompleteError, InputError, NotFoundError
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.storage.runs.checkpoint import checkpoint_epochs
from gnnloom.storage.runs.run import Run
from gnnloom.storage.wording import counted
from gnnloom.trainer.config.continuation import find_named, predicting_epoch
from gnnloom.trainer.config.optimization_config import ended_early
from gnnloom.trainer.config.smoothing_config import SmoothingConfig
from gnnloom.trainer.config.stored_predictions import SMOOTHING
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.recipe import Recipe


@dataclass(frozen=True)
class RecipeFacts:
    """Facts for finding a stage's output: the recipe, and the keys of earlier stages.

    Attributes:
        cluster: runs the stages before training; its memory is part of the multilevel partitioner's key.
        keys: the key of each artifact of earlier stages, by stage.
        restart: start the training run over.
    """

    recipe: Recipe
    cluster: ClusterOptions
    keys: Mapping[str, str]
    restart: bool = False

    def with_key(self, name: str, key: str) -> RecipeFacts:
        """The same facts after one more stage that makes an artifact."""
        return replace(self, keys={**self.keys, name: key})

    @property
    def read_graph(self) -> str:
        """The key of the graph that stages after the links read: without held-out edges, if there are any."""
        graph, links = self.keys["graph"], self.recipe.links
        if "links" not in self.keys or links is None:
            return graph
        if links.relation is not None:
            return kept_graph_key(graph, self.keys["links"], links.relation)
        return message_key(graph, self.keys["links"])

    @property
    def inputs(self) -> dict[str, str]:
        """Keys by kind of the artifacts that stages after the links read."""
        return {name: key for name, key in self.keys.items() if name != "links"} | {"graph": self.read_graph}

    @cached_property
    def config(self) -> TrainConfig:
        """The configuration of the recipe's training run, on the artifacts of earlier stages.

        The name of its run depends on everything that affects its result. Training for more epochs continues the
        existing run. Training for fewer epochs than the run has becomes a separate run, so that the longer run stays
        unchanged.
        """
        recipe, training, keys = self.recipe, self.recipe.training, self.keys
        read: dict[str, Any] = {name: keys[name] for name in ("samples", "propagated") if name in keys}
        # Runs on graphs with types have no shards. The dataset may have other links and vertex data than the recipe.
        data = self.read_graph if recipe.relations else keys["shards"]
        if not recipe.relations:
            read["shards"] = data
        elif training.task.on_pairs:
            read["links"] = keys["links"]
        if recipe.relations and not training.mode.vertex_data:
            read["vertex_data"] = tuple(f"{name}={key}" for name, key in self.type_vertices.items())
        training = training.with_options(**read)
        name = training.name_with_shards(data)
        if recipe.dataset.name in Catalog(recipe.catalog):
            # Also if the dataset was later imported under another name.
            name = find_named(self.dataset, training, lambda each: each.name_with_shards(data))
        epochs = training.optimization.epochs
        if training.run.name is None and _trained_epochs(Run(recipe.dataset_path / "runs" / name)) > epochs:
            name = f"{name}-{epochs}"
        return training.with_options(run=name)

    @property
    def type_vertices(self) -> dict[str, str]:
        """Keys of the vertex data by type, of a recipe with relations.

        Raises:
            InputError: the rows of a table name their types, which are known only after the graph is stored.
        """
        graph = self.keys["graph"]
        if any(each.tables for each in self.recipe.tables().data) and not self.has("graph", graph):
            raise InputError(
                f"{self.recipe.source_name}: the rows of a table of vertices name their types (type_column), whose data"
                " later stages read; store the graph first, with a recipe that has no such stages"
            )
        return self.vertex_data(graph)

    @property
    def reverses(self) -> str:
        """Key of the reverses of the relations, of a recipe with relations."""
        graph = self.keys["graph"]
        return reverses_key(graph) if self.read_graph == graph else reverses_key(self.read_graph, graph)

    def vertex_data(self, graph_key: str) -> dict[str, str]:
        """Keys of the vertex data of each type of a graph; before it is stored, without types that rows name."""
        data: Sequence[TypeVertices] = self.recipe.tables().data
        if any(each.tables for each in data):
            is_stored = self.has("graph", graph_key)
            known = [each for each in data if not each.tables]
            data = of_each_type(data, self.dataset.typed_graph(graph_key)) if is_stored else known
        return {each.type: vertices_key(each.open(None).identity(), graph_key, of_type=each.type) for each in data}

    @property
    def dataset(self) -> Dataset:
        """The dataset.

        Raises:
            NotFoundError: it does not exist yet.
        """
        return Catalog(self.recipe.catalog).dataset(self.recipe.dataset.name)

    @property
    def run(self) -> Run:
        """The training run, which may not exist yet."""
        return Run(self.recipe.dataset_path / "runs" / self.config.run_name)

    @cached_property
    def is_trained(self) -> bool:
        """Whether the run has finished exactly the training of the recipe, and must not start over."""
        if self.restart or not self.run.exists:
            return False
        config = self.config
        try:
            before, result = TrainConfig.of_run(self.run), self.run.result()
        except IncompleteError:
            return False
        is_long_enough = result["epochs"] == config.optimization.epochs or ended_early(result, config.stopping.patience)
        # Changes leave out the epochs: a run of fewer epochs is the same training, which will be continued.
        # Runs on graphs without types name their shards, which belong to one graph.
        is_same = not self.recipe.relations or self.run.inputs().get("graph") == self.read_graph
        is_same = is_same and before.data.shards == config.data.shards
        return is_same and not config.changes_since(before) and is_long_enough

    def refuse_other_run(self) -> None:
        """Check that a run of this name, if there is one, is the same training of the same graph.

        Raises:
            ExistsError: it is a different training, or has more epochs.
        """
        run, config = self.run, self.config
        if not run.exists:
            return
        before, epochs = TrainConfig.of_run(run), _trained_epochs(run)
        changes = config.changes_since(before)
        # Shards are named first: other shards mean another graph, whatever else has changed.
        if before.data.shards != config.data.shards:
            differs = "made from other shards"
        elif changes:
            differs = f"made with {', '.join(changes)}"
        elif epochs > config.optimization.epochs:
            differs = f"trained for {counted(epochs, 'epoch')} already, more than {config.optimization.epochs}"
        else:
            return
        raise ExistsError(
            f"{run.path}: this run was {differs}; choose another name with --set train.run=..., or --restart to start"
            " it over"
        )

    def is_predicted(self, run: Run) -> bool:
        """Whether a run has the recipe's predictions, made from the checkpoint for predictions."""
        try:
            predictions = run.predictions()
        except NotFoundError:
            return False
        predict = self.recipe.predict
        if predict is None or predictions.facts.get("epoch") != predicting_epoch(run):
            return False
        smoothing = predict.smoothing
        if smoothing.smooths and SmoothingConfig.of_facts(predictions.facts.get(SMOOTHING)) != smoothing:
            return False
        # A model without hidden layers has no embeddings to store.
        return "embedding" in predictions or not (predict.embeddings and self.recipe.training.model.hidden)

    def has(self, kind: str, key: str) -> bool:
        """Whether the dataset has an artifact; artifacts with a manifest are complete, because it is written last."""
        return (self.recipe.dataset_path / kind / key / MANIFEST).exists()

    def stored(self, kind: str, key: str | None) -> Artifact | None:
        """An artifact of the dataset; None if it does not exist, or if the recipe has none."""
        return Artifact(self.recipe.dataset_path / kind / key) if key is not None and self.has(kind, key) else None

    @contextmanager
    def named_section(self, section: str) -> Iterator[None]:
        """Begin errors about a section's files and numbers with the recipe and the section."""
        try:
            yield
        except (InputError, NotFoundError) as error:
            # Keep the class of the error, because callers distinguish a missing file from a bad one.
            kind = NotFoundError if isinstance(error, NotFoundError) else InputError
            raise kind(f"{self.recipe.source_name}: [{section}] {error}") from error


def _trained_epochs(run: Run) -> int:
    return max(checkpoint_epochs(run.checkpoints), default=0)
