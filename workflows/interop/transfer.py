"""Gives a trained run to another graph, so that it predicts there: a run with the same weights in that dataset."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.disk.files import remove_tree
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import ExistsError, InputError, NotFoundError
from gnnloom.storage.format.arrays import Array, ArrayReader
from gnnloom.storage.format.memory_map import map_copy
from gnnloom.storage.option import Group, option
from gnnloom.storage.runs.checkpoint import StoredCheckpoint, read_checkpoint
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.storage.runs.transfer import Transfer, write_transfer
from gnnloom.trainer.config.continuation import predicting_checkpoint
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.tasks.registry import task_of_data
from gnnloom.workflows.interop.given_vertices import ids_in, matching_vertices
from gnnloom.workflows.interop.transfer_checks import (
    Data,
    check_features,
    check_graph,
    find_products,
    renumbered,
)
from gnnloom.workflows.interop.typed_transfer import TypedData, other_graph, store_reverses

AnyData = TypeVar("AnyData", Data, TypedData)

#: What becomes of vertices whose learned vectors the run does not have.
UNKNOWN: Final = ("error", "zero")
#: Hexadecimal digits of the digest in the name of a transferred run.
_DIGITS: Final = 8


@dataclass(frozen=True)
class Elsewhere:
    """Another graph for a run to predict on, than the one that it was trained on.

    Attributes:
        on: dataset of the graph; None for the run's own.
        graph: key of the graph; None for the only one.
        vertices: key of the vertex data; None for the only ones of the graph.
        unknown: what becomes of a vertex whose learned vector the run does not have: ``error``, or ``zero`` for a
            vector of zeros.
    """

    on: str | None = option(
        None,
        "Another dataset to predict on, with the same features.",
        group=Group.INPUT,
        is_common=True,
        default_text="the run's",
        metavar="NAME",
    )
    graph: str | None = option(
        None,
        "Graph to predict on.",
        group=Group.INPUT,
        default_text="the graph of the run, or the only graph of another dataset",
        metavar="KEY",
    )
    vertices: str | None = option(
        None,
        "Vertex data to predict with, if the graph has several; in a graph with types, TYPE=KEY,...",
        group=Group.INPUT,
        metavar="KEY",
    )
    unknown: str = option(
        UNKNOWN[0],
        "What to do with vertices for which the run has no learned vector (--embed): fail, or use a vector of zeros.",
        group=Group.MODEL,
        choices=UNKNOWN,
    )

    def __post_init__(self) -> None:
        if self.unknown not in UNKNOWN:
            raise InputError(f"unknown {self.unknown!r}: expected {' or '.join(UNKNOWN)}")
        if not self and self.unknown != UNKNOWN[0]:
            raise InputError("unknown: applies only to predictions on another graph; give graph or on")

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.on, self.graph, self.vertices))


@dataclass(frozen=True)
class PlannedTransfer:
    """A transfer that has been checked.

    Attributes:
        dataset: dataset of the other graph.
        run: the transferred run, which may not exist yet.
        transfer: what its file says.
        config: its configuration.
        inputs: kind to key of what it reads.
        checkpoint: the checkpoint to copy.
        learned: names of the arrays of the checkpoint with a learned vector for each vertex.
    """

    trained: Data | TypedData
    other: Data | TypedData
    run: Run
    transfer: Transfer
    config: Mapping[str, Any]
    inputs: Mapping[str, str]
    checkpoint: StoredCheckpoint
    learned: Sequence[str]

    @property
    def dataset(self) -> Dataset:
        return self.other.dataset

    @property
    def is_done(self) -> bool:
        """Whether the transferred run exists, with these weights."""
        return self.run.exists and Transfer.of(self.run) == self.transfer


def plan_transfer(
    dataset: Dataset, run: Run, elsewhere: Elsewhere, checkpoint: str = "auto", ranks: int | None = None
) -> PlannedTransfer | None:
    """Check that a trained run can predict on another graph, and plan the run that does; writes nothing.

    Args:
        dataset, run: the run that was trained.
        checkpoint: the checkpoint that predicts: ``best``, ``last`` or ``auto``.
        ranks: number of ranks that predict; by default the number of training ranks.

    Returns:
        None if the graph and the vertex data are the training data, so that the run itself predicts.

    Raises:
        NotFoundError: there is no such graph, or the training data of the run were removed.
        InputError: the graph or its vertex data do not fit the run.
        ExistsError: the name of the transferred run belongs to a run that was trained.
    """
    config = TrainConfig.of_run(run)
    compare = _compared_types if config.mode.on_types else _compared
    compared = compare(dataset, run, config, elsewhere)
    if compared is None:
        return None
    trained, other, known, products = compared
    if other.vertices is not None and not config.task.on_pairs:
        renumbered(known, other.vertices)
    there = Run(other.dataset.run_path(_name(dataset, run, other)))
    if there.exists and there.metrics_path.exists():
        raise ExistsError(f"{there.path}: this run was trained here; rename or remove it to predict with {run.name}")
    folder, epoch = predicting_checkpoint(run, checkpoint)
    stored = read_checkpoint(folder, epoch or None)
    inputs = {**other.inputs, **products}
    content = _config(run, config, known, trained, there, other, products, ranks)
    transfer = _sealed(known, stored, content, inputs, elsewhere.unknown)
    learns = config.model.embed > 0 or config.model.train_features
    learned = [name for name in other.learned if name in stored.readers] if learns else []
    return PlannedTransfer(trained, other, there, transfer, content, inputs, stored, learned)


def transferred(
    dataset: Dataset, run: Run, elsewhere: Elsewhere, checkpoint: str = "auto", ranks: int | None = None
) -> tuple[Dataset, Run]:
    """The run that predicts on another graph with the weights of a trained run; made if it does not exist.

    Called by one process.

    Args:
        dataset, run, elsewhere, checkpoint, ranks: as :func:`plan_transfer` has them.

    Returns:
        The dataset of the graph, and the run in it; for the graph of the training, the run that was given.

    Raises:
        NotFoundError, InputError: as :func:`plan_transfer`.
        ExistsError: likewise; or another process writes the run.
    """
    if (graph := graph_without_reverses(dataset, run, elsewhere)) is not None:
        store_reverses(*graph)
    plan = plan_transfer(dataset, run, elsewhere, checkpoint, ranks)
    if plan is None:
        return dataset, run
    if plan.is_done:
        return plan.dataset, plan.run
    existed = plan.run.exists
    with sole_writer(plan.run):
        try:
            learned: dict[str, tuple[int, Iterator[Array]]] = {}
            for name in plan.learned:
                before, now = plan.trained.learned[name], plan.other.learned[name]
                rows = _rows_by_id(plan.checkpoint.readers[name], before, now, plan.dataset.name, elsewhere.unknown)
                learned[name] = now.num_vertices, rows
            write_transfer(plan.run, plan.config, plan.inputs, plan.transfer, plan.checkpoint, learned)
        except BaseException:
            if not existed:
                with suppress(OSError):
                    remove_tree(plan.run.path)
            raise
    return plan.dataset, plan.run


def graph_without_reverses(dataset: Dataset, run: Run, elsewhere: Elsewhere) -> tuple[Dataset, TypedGraph] | None:
    """The graph to predict on, and its dataset, if the run gathers along reverses that this graph lacks."""
    if not run.config().get("reverse"):
        return None
    there = _dataset(dataset, elsewhere)
    graph = other_graph(there, elsewhere.graph, elsewhere.vertices)
    return None if there.fitting("transpose", made_from={"graph": graph.artifact.key}, union="") else (there, graph)


def _dataset(dataset: Dataset, elsewhere: Elsewhere) -> Dataset:
    """The dataset of the graph to predict on."""
    return Catalog(dataset.path.parent).dataset(elsewhere.on) if elsewhere.on else dataset


#: The data of the training, the data to predict with, what the run knows of its labels, and what else it reads there.
_Compared = tuple[Data | TypedData, Data | TypedData, Transfer, dict[str, str]]


def _is_own(dataset: Dataset, run: Run, other: Data | TypedData) -> bool:
    """Whether the data to predict with are the training data, which are not opened: they may have been removed."""
    return other.dataset.path == dataset.path and other.inputs.items() <= run.inputs().items()


def _compared(dataset: Dataset, run: Run, config: TrainConfig, elsewhere: Elsewhere) -> _Compared | None:
    """The data of a run, compared with another graph without types and its vertex data; None for its own graph."""
    there, inputs = _dataset(dataset, elsewhere), run.inputs()
    graph = there.graph(elsewhere.graph)
    try:
        vertices = there.vertices(elsewhere.vertices, graph=graph.artifact.key)
    except NotFoundError:
        if elsewhere.vertices is not None:
            raise
        vertices = None
    other = Data(there, graph, vertices)
    if _is_own(dataset, run, other):
        return None

    def open_trained() -> Data:
        own = dataset.vertices(inputs["vertices"]) if "vertices" in inputs else None
        return Data(dataset, dataset.graph(inputs["graph"]), own)

    trained = _still_there(run, open_trained)
    is_rowwise = config.model.name in MODELS and MODELS[config.model.name].is_rowwise
    if not is_rowwise:
        check_graph(trained, other)
    if not config.model.embed and trained.vertices is not None:
        check_features(trained.vertices, vertices, there.name)
    products: dict[str, str] = {}
    if (key := inputs.get("propagated")) is not None:
        before = dataset.propagated(key)
        products = {"propagated": find_products(before, other, config.mode.steps or before.steps).artifact.key}
    return trained, other, _known_data(dataset, run, config, trained), products


def _compared_types(dataset: Dataset, run: Run, config: TrainConfig, elsewhere: Elsewhere) -> _Compared | None:
    """The data of a run, compared with another graph with types and its vertex data; None for its own graph."""
    there = _dataset(dataset, elsewhere)
    graph = other_graph(there, elsewhere.graph, elsewhere.vertices)
    other = TypedData.other(there, graph, elsewhere.vertices, run.inputs(), config)
    if _is_own(dataset, run, other):
        return None
    trained = _still_there(run, lambda: TypedData.trained(dataset, run, config))
    other.check_against(trained)
    return trained, other, _known_data(dataset, run, config, trained), {}


def _still_there(run: Run, open_data: Callable[[], AnyData]) -> AnyData:
    """The data that a run was trained on.

    Raises:
        NotFoundError: they were removed.
    """
    try:
        return open_data()
    except NotFoundError as error:
        raise NotFoundError(
            f"{run.path}: the data that the run was trained on, with which another graph is compared, were removed"
            f" ({error})"
        ) from error


def _known_data(dataset: Dataset, run: Run, config: TrainConfig, trained: Data | TypedData) -> Transfer:
    """The labels that the run knows, with the origin of its weights."""
    before = Transfer.of(run)
    if before is not None:
        return before
    facts: dict[str, Any] = {}
    if config.task.on_pairs:
        links = dataset.links(run.inputs()["links"])
        facts = {"task": config.task.name, "kind": links.kind, "num_classes": links.num_classes}
    elif trained.vertices is not None:
        artifact = trained.vertices.artifact
        facts = {
            "task": task_of_data(config.task.name, artifact, artifact.path).name,
            "num_classes": trained.vertices.num_classes,
            "num_targets": trained.vertices.num_targets,
            "class_names": trained.vertices.class_names,
        }
    return Transfer(dataset=dataset.name, run=run.name, epoch=0, source="", **facts)


def _name(dataset: Dataset, run: Run, other: Data | TypedData) -> str:
    """Name of the transferred run, which is the same whenever the run predicts on these data."""
    content = json.dumps([dataset.name, run.name, other.inputs], sort_keys=True)
    return f"{run.name}-on-{hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]}"


def _config(
    run: Run,
    config: TrainConfig,
    known: Transfer,
    trained: Data | TypedData,
    there: Run,
    other: Data | TypedData,
    products: Mapping[str, str],
    ranks: int | None,
) -> dict[str, Any]:
    """The configuration of the transferred run: what the training settled from its data is stated."""
    given = config.algorithm.ranks if ranks is None else ranks
    steps = list(config.mode.steps)
    if products and not steps:
        steps = [0, *trained.dataset.propagated(run.inputs()["propagated"]).steps]
    return {
        **run.config(),
        "catalog": str(other.dataset.path.parent),
        "dataset": other.dataset.name,
        "run": there.name,
        "task": known.task,
        "feature_norm": _feature_norm(run, config, trained),
        "ranks": given,
        "grid": list(config.algorithm.grid) if config.algorithm.grid and given == config.algorithm.ranks else None,
        "steps": steps,
        "propagated": products.get("propagated"),
        **dict.fromkeys(("shards", "method", "permutation", "samples", "links")),
        # Keys of the training; the inputs of the run say what it reads.
        "vertex_data": [],
        "save_embeddings": False,
        "log": [],
    }


def _feature_norm(run: Run, config: TrainConfig, trained: Data | TypedData) -> str:
    """Scaling of the features in training; ``auto`` depends on all features that the run read, except with types."""
    if config.mode.on_types or config.data.feature_norm != "auto" or config.model.embed or trained.vertices is None:
        return config.data.feature_norm
    if run.is_finished and (norm := run.result().get("feature_norm")) is not None:
        return str(norm)
    is_negative = any(bool((rows < 0).any()) for rows in trained.vertices.array("feature").chunks())
    return "none" if is_negative else "row"


def _sealed(
    known: Transfer, stored: StoredCheckpoint, config: Mapping[str, Any], reads: Mapping[str, str], unknown: str
) -> Transfer:
    """The transfer, with a digest of all that it is made from."""
    arrays = {name: reader.record.content_json() for name, reader in stored.readers.items()}
    # The ranks do not change what is predicted; where the catalog is does not either.
    kept = {name: value for name, value in config.items() if name not in {"catalog", "ranks", "grid"}}
    content = json.dumps([arrays, kept, dict(reads), unknown], sort_keys=True, default=str)
    facts = {name: value for name, value in vars(known).items() if name not in {"epoch", "source"}}
    return Transfer(**facts, epoch=stored.epoch, source=hashlib.sha256(content.encode()).hexdigest())


def _rows_by_id(reader: ArrayReader, trained: SourceIds, other: SourceIds, where: str, unknown: str) -> Iterator[Array]:
    """The learned vectors of the vertices of another graph, or of one of its types, found by the ids of the source.

    Args:
        where: the dataset of the other graph, for messages.
        unknown: what becomes of a vertex without a learned vector.

    Raises:
        InputError: a vertex is unknown, unless its vector is to be zero.
    """
    with own_folder() as folder:
        copy = map_copy(reader, folder)
        first = 0
        for found in matching_vertices(trained, other):
            is_unknown = found < 0
            if unknown == UNKNOWN[0] and is_unknown.any():
                at = first + int(np.argmax(is_unknown))
                vertex = f"vertex {ids_in(other, at, at + 1)[0]!r}{f' of type {other.type}' if other.type else ''}"
                raise InputError(
                    f"dataset {where}: the run has no learned vector of {vertex}, which was not in the training graph;"
                    " predict with `--unknown zero` to give such vertices vectors of zeros, or train a new run"
                )
            rows: NDArray[Any] = copy.values[np.maximum(found, 0)]
            rows[is_unknown] = 0
            yield rows
            first += len(found)
        copy.check()
