"""Forecasts a training run before it runs: memory of every rank, bytes read and written, and time if it is known.

The memory comes from a rehearsal; a test compares it with measured runs.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.run import Run
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.trainer.algorithms.p2p import COVER
from gnnloom.trainer.config.continuation import OpenedRun, find_start, with_its_run
from gnnloom.trainer.config.fields import deciding_options
from gnnloom.trainer.config.mode_config import ModeConfig
from gnnloom.trainer.config.model_config import ModelConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import ROW_SHARDS, missing_features, open_samples
from gnnloom.trainer.training.rehearsal.shard_sizes import RowSizes, ShardSizes, sizes_of

#: A rank without any data, as measured at the end of a run: interpreter, torch, MPI, kernels in C, state of autograd,
#: chunks of arrays that are read.
PROCESS_MEMORY = 296 << 20
#: Additional bytes of numba, with compiled kernels.
NUMBA_MEMORY = 114 << 20
#: Additional bytes of PyG, with pandas and a part of torch's compiler.
PYG_MEMORY = 157 << 20
#: Maximum number of ranks to rehearse; the ranks with most rows are chosen.
_MOST_RANKS = 4
#: Bytes of an epoch's line of metrics.
LINE_BYTES = 400


@dataclass(frozen=True)
class TrainProjection:
    """Expected needs of a training run.

    Attributes:
        first_epoch: epoch of the checkpoint from which the run continues; 0 for a new run.
        epochs: epochs of the run in the end.
        peak_memory: bytes of each rank; of many ranks, those with fewer rows count as the smallest of the others.
        process_memory, adjacency_memory, feature_memory, workspace_memory, batch_memory: the parts of the memory of the
            busiest rank. The workspace has the tensors of layers and rows on their way between ranks; batches are those
            that are prepared ahead of their use; with the features counts everything else.
        mapped_bytes: of files that sampled modes map; all ranks of a machine share them, except for packed rows and
            temporary files of an evaluation from disk, and the system takes their pages back when it needs the memory.
            Not part of the ranks' memory.
        read_bytes: that the busiest rank reads; compressed, as stored.
        written_bytes: on disk in the end, by all ranks: checkpoints, metrics and predictions.
        epoch_seconds: median of an earlier run of the same size on the same shards, or what the planner expects (see
            :func:`gnnloom.trainer.planner.forecast.with_planned_seconds`); None if neither is known.
        seconds: of all epochs that are left, at this rate.
        seconds_from: the name of that run, or the planner's machine profile; None if the time is not known.
        temporary_bytes: of temporary files, by all ranks: the model's input with ``--inputs disk``, and an evaluation
            that does not fit in memory and runs from disk.
    """

    dataset: str
    run: str
    algorithm: str
    ranks: int
    grid: list[int]
    first_epoch: int
    epochs: int
    peak_memory: list[int]
    process_memory: int
    adjacency_memory: int
    feature_memory: int
    workspace_memory: int
    batch_memory: int
    mapped_bytes: int
    read_bytes: int
    written_bytes: int
    epoch_seconds: float | None = None
    seconds: float | None = None
    seconds_from: str | None = None
    temporary_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class UnknownMemoryError(InputError):
    """The memory of a training run cannot be forecast."""


def opened_run(config: TrainConfig, *, restart: bool = False) -> OpenedRun:
    """The run that training would begin or continue. Reads only manifests.

    Args:
        restart: the run would start over.

    Raises:
        NotFoundError: the dataset or its shards do not exist.
        ExistsError, InputError: the training would be refused.
    """
    config = with_its_run(config)
    dataset = Catalog(config.data.catalog).dataset(config.data.dataset)
    run = Run(dataset.run_path(config.run_name))
    return OpenedRun.open(config, dataset, run, 0, config.algorithm.ranks, goes_on=not restart, plans=True)


def project_training(config: TrainConfig, *, restart: bool = False) -> TrainProjection:
    """Project the needs of training, which may continue a run. Reads only manifests, and starts nothing.

    Raises:
        NotFoundError: the dataset or its shards do not exist.
        ExistsError, InputError: the training would be refused.
        UnknownMemoryError: its memory is unknown.
    """
    # It imports torch, which plans before there are shards do without.
    from gnnloom.trainer.training.rehearsal.rank_memory import rehearse, why_unknown  # noqa: PLC0415

    config.check_code()
    opened = opened_run(config, restart=restart)
    config, dataset, shards = opened.config, opened.dataset, opened.shards.shards
    sizes = sizes_of(shards, config.task, config.algorithm.ranks, reads_features=not config.model.embed)
    if not (config.model.embed or sizes.num_features or config.mode.on_types) or not sizes.num_outputs:
        raise InputError(
            f"{shards.artifact.path}: the shards lack features or labels; there is nothing to train"
            f"{missing_features(dataset.name) if sizes.num_outputs else ''}"
        )
    start = find_start(opened.run, config, opened.inputs, restart=restart)
    seconds, measured = _known_seconds(opened)
    drawn = replace(opened, config=with_drawn_options(config, dataset, shards.artifact))
    ranks = _largest_ranks(config.algorithm.ranks, sizes)
    found = {rank: rehearse(drawn, rank) for rank in ranks}
    known = {rank: memory for rank, memory in found.items() if memory is not None}
    if len(known) < len(found):
        cause = why_unknown(drawn.config) or (
            "it runs code of another package that needs values of features; train for one epoch (--epochs 1), whose"
            " result has the peak memory"
        )
        raise UnknownMemoryError(f"run {config.run_name}: its memory is unknown, as {cause}")
    process, busiest = process_memory(config), max(known.values(), key=lambda memory: memory.total)
    least = min(known.values(), key=lambda memory: memory.total)
    read = sizes.ranks[ranks[0]].read_bytes if isinstance(sizes, RowSizes) else sizes.bytes_of(*busiest.read_shares)
    predicted = prediction_bytes(sizes, config.model, embeddings=True) if config.run.save_embeddings else 0
    left = config.optimization.epochs - start.first_epoch
    return TrainProjection(
        dataset=config.data.dataset,
        run=config.run_name,
        algorithm=config.algorithm.name,
        ranks=config.algorithm.ranks,
        grid=list(config.algorithm.axes.values()),
        first_epoch=start.first_epoch,
        epochs=config.optimization.epochs,
        peak_memory=[process + known.get(rank, least).total for rank in range(config.algorithm.ranks)],
        process_memory=process,
        adjacency_memory=busiest.adjacency,
        feature_memory=busiest.others,
        workspace_memory=busiest.workspace,
        batch_memory=busiest.batches,
        mapped_bytes=busiest.mapped,
        read_bytes=read,
        written_bytes=kept_checkpoints(config) * busiest.checkpoint
        + LINE_BYTES * config.optimization.epochs
        + predicted,
        epoch_seconds=seconds,
        seconds=None if seconds is None else left * seconds,
        seconds_from=measured,
        temporary_bytes=config.algorithm.ranks * busiest.temporary,
    )


def _largest_ranks(num_ranks: int, sizes: ShardSizes) -> list[int]:
    """The ranks that are rehearsed, those with most rows first."""
    if not isinstance(sizes, RowSizes):
        # Ranges of vertices or columns that do not divide evenly are longer at the end.
        return sorted({0, num_ranks - 1})
    rows = [rank.own + rank.halo + rank.sent for rank in sizes.ranks]
    return sorted(range(num_ranks), key=lambda rank: -rows[rank])[:_MOST_RANKS]


def kept_checkpoints(config: TrainConfig) -> int:
    """Checkpoints that stay on disk."""
    return min(config.run.keep, config.optimization.epochs) + (config.stopping.keep_best != "none")


def with_drawn_options(config: TrainConfig, dataset: Dataset, shards: Artifact) -> TrainConfig:
    """The configuration with the options of batches that it may leave to samples or to a partition.

    It may stand for another run than the given one, as derived names depend on these options.

    Raises:
        NotFoundError: the dataset lacks the samples or the partition.
        InputError: the samples do not fit the run, or there are several partitions.
    """
    if config.mode.samples is not None and not config.mode.on_types:
        given, num_layers = config.mode.own_options(), len(config.model.hidden) + 1
        on_edges = config.model.kind.on_edges
        samples = open_samples(
            dataset, given, num_layers, shards, config.algorithm.ranks, ReadCounter(), on_edges=on_edges
        )
        return config.with_options(**samples.drawn)
    if (
        "sampler" in config.mode.kind.options
        and SAMPLERS[config.mode.sampler].draws_parts
        and not config.mode.cluster_parts
    ):
        return config.with_options(cluster_parts=dataset.partition(None, config.mode.cluster_key or None).num_parts)
    return config


def process_memory(config: TrainConfig) -> int:
    """Bytes of a rank without any data."""
    kind, work = config.model.kind, config.model.work
    # Grids are read with numba; batches, attention, pairs, covers and first learned features are computed with it.
    attends = not kind.is_rowwise if work is None else work.attends
    covers = config.algorithm.kind.name == "p2p" and config.algorithm.exchange == COVER
    uses_numba = config.mode.name != "full" or attends or covers or config.model.embed or config.task.on_pairs
    plain = config.algorithm.kind.reads is ROW_SHARDS and not uses_numba
    # Modules of other packages are there once the configuration has named them.
    pyg = PYG_MEMORY if kind.on_edges and "torch_geometric" in sys.modules else 0
    return PROCESS_MEMORY + (0 if plain else NUMBA_MEMORY) + pyg


def prediction_bytes(shards: ShardSizes, config: ModelConfig, *, embeddings: bool, smooths: bool = False) -> int:
    """Bytes of the class, or the predicted numbers, of every vertex, with its scores and perhaps its embedding.

    Args:
        smooths: classes and scores are there a second time, smoothed.
    """
    embedding = config.hidden[-1] if embeddings and config.hidden else 0
    size, times = np.dtype(config.dtype).itemsize, 1 + smooths
    return shards.num_vertices * (times * (shards.num_outputs * size + 4) + embedding * size)


#: Options that affect the time of an epoch.
_SIZE_OPTIONS = (
    "algorithm", "ranks", "grid", "model", "hidden", "heads", "attention", "precision", "norm", "dropout",
    "input_dropout", "product_order", "train_features", "embed", "threads", "adjacency", "exchange",
    *deciding_options(ModeConfig),
)  # fmt: skip


def _known_seconds(opened: OpenedRun) -> tuple[float | None, str | None]:
    """The median time of an epoch in an earlier run of the same size, and the name of that run."""
    dataset, config, own = opened.dataset, opened.config, opened.run.name
    # The run itself is the best source for the time of its epochs.
    for name in sorted(dataset.runs(), key=lambda name: name != own):
        run = Run(dataset.run_path(name))
        try:
            before, lines = TrainConfig.of_run(run), run.metrics()
        except GnnloomError:
            continue  # a damaged run, or one of a model that is not installed, has no time
        # There are no shards of a graph with types.
        if not lines or any(run.inputs().get(kind) != opened.inputs.get(kind) for kind in ("shards", "graph")):
            continue
        if all(before.value(name) == config.value(name) for name in _SIZE_OPTIONS):
            return statistics.median(line["seconds"] for line in lines), name
    return None, None
