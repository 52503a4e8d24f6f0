"""What a training will need, before it runs: memory of every rank, bytes read and written, and time if it is known.

Sizes of shards are exact. What the layers take is counted by tensors: the results that the backward pass needs, and
what exists in addition to them at the worst moment. A test compares the sum with measured runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from gnnloom.storage.artifacts.grid_variants import TRANSPOSED, stored_variants
from gnnloom.storage.artifacts.stored_csr import BLOCK_ENTRIES, NUM_BUFFERS
from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.storage.format.arrays import CHUNK_BYTES, ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.csr import INT32_WIDTH
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.algorithms.footprint import Footprint
from gnnloom.trainer.config.continuation import Start, find_start, inputs_of, run_of, with_its_run
from gnnloom.trainer.config.mode_config import ModeConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_samples import open_samples
from gnnloom.trainer.data.open_shards import ROW_SHARDS
from gnnloom.trainer.models.work import UNKNOWN, ModelWork
from gnnloom.trainer.networks.options import ModelOptions
from gnnloom.trainer.training.batch_projection import RankRows, batch_sizes, prepared_bytes
from gnnloom.trainer.training.gathered import GATHERED
from gnnloom.trainer.training.requested import check_graph, model_options
from gnnloom.trainer.training.reused_memory import reused_peak, reuses_memory
from gnnloom.trainer.training.shard_sizes import GridSizes, RankSizes, RowSizes, ShardSizes, sizes_of

#: A rank without any data, as measured at the end of a run: interpreter, torch, MPI, kernels in C, state of autograd.
PROCESS_MEMORY = 264 << 20
#: What numba takes in addition, with kernels that it has compiled.
NUMBA_MEMORY = 120 << 20
#: Bytes per row in addition to features: id, label, split, factors of the normalization, masks of the splits.
_ROW_BYTES = 40
#: What a rank takes beyond the process itself is at most this factor more or less than projected.
UNCERTAINTY = 1.4
#: Copies of every parameter in a checkpoint, by optimizer: itself, and its moments.
_COPIES = {"adam": 3, "sgd": 1}
#: Matrices of as many numbers as a step of an evaluation from disk gathers.
_LAYERWISE = 4
#: Bytes of an epoch's line of metrics.
_LINE_BYTES = 400


@dataclass(frozen=True)
class TrainProjection:
    """What a training is expected to need.

    Attributes:
        first_epoch: epoch of the checkpoint from which the run continues; 0 for a new run.
        epochs: epochs of the run in the end.
        peak_memory: bytes of each rank.
        process_memory, adjacency_memory, feature_memory, layer_memory, batch_memory: the parts of the busiest rank's
            memory; that of layers includes rows on their way between ranks, and that of batches is what is prepared
            ahead of its use.
        workspace_memory: what the large tensors of a rehearsed epoch take on the rank where they take most, part of the
            memory of layers and features; None if it is not known, see :mod:`gnnloom.trainer.training.rehearsal`.
        mapped_bytes: of files that sampled modes map; all ranks of a machine share them, and the system takes their
            pages back when it needs the memory. Not part of the ranks' memory.
        read_bytes: that the busiest rank reads; compressed, as stored.
        written_bytes: on disk in the end, by all ranks: checkpoints, metrics and predictions.
        epoch_seconds: median of an earlier run of the same size on the same shards; None if there is none.
        seconds: of all epochs that are left, by the same run.
        seconds_from: name of that run.
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
    layer_memory: int
    batch_memory: int
    workspace_memory: int | None
    mapped_bytes: int
    read_bytes: int
    written_bytes: int
    epoch_seconds: float | None
    seconds: float | None
    seconds_from: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Memory:
    """Bytes of one rank by purpose, beyond the process itself."""

    adjacency: int
    features: int
    layers: int
    batches: int = 0

    @property
    def total(self) -> int:
        return self.adjacency + self.features + self.layers + self.batches


@dataclass(frozen=True)
class _Matrix:
    """What the projection must know of the matrices that a rank multiplies with."""

    num_vertices: int
    nnz: int
    entry_bytes: int
    #: Copies of the adjacency, as a multiple of what one layer multiplies with.
    matrices: float


def project_training(config: TrainConfig, *, restart: bool = False) -> TrainProjection:
    """Project a training that may continue a run. Reads manifests only, and starts nothing.

    Raises:
        NotFoundError: the dataset or its shards do not exist.
        ExistsError, InputError: the training would be refused.
    """
    config = with_its_run(config)
    run = config.run_name
    dataset = Catalog(config.catalog).dataset(config.dataset)
    # Rank 0 stands for all: whether the shards fit the ranks does not depend on it.
    shards = config.chosen_algorithm.reads.open(dataset, config, 0, config.ranks, ReadCounter()).shards
    check_graph(config.model, shards)
    sizes = sizes_of(shards, config.task)
    if not sizes.num_features or not sizes.num_outputs:
        raise InputError(f"{shards.artifact.path}: the shards lack features or labels; there is nothing to train")
    start = find_start(config, inputs_of(shards.artifact), restart=restart)
    seconds, measured = _known_seconds(dataset, config, shards.artifact.key)
    return replace(
        project_new_training(with_drawn_options(config, dataset, shards.artifact), sizes),
        run=run,
        first_epoch=start.first_epoch,
        epoch_seconds=seconds,
        seconds=None if seconds is None else _left(start, config) * seconds,
        seconds_from=measured,
    )


def with_drawn_options(config: TrainConfig, dataset: Dataset, shards: Artifact) -> TrainConfig:
    """The configuration with the options of batches that it may leave to samples or to a partition.

    It may stand for another run than the given one, as derived names depend on these options.

    Raises:
        NotFoundError: the dataset lacks the samples or the partition.
        InputError: the samples do not fit the run, or there are several partitions.
    """
    if config.samples is not None:
        samples = open_samples(dataset, config, shards, config.ranks, ReadCounter())
        return replace(config, fanout=samples.fanouts, batch_size=samples.batch_size, replace=samples.replace)
    if config.mode == "subgraph" and config.sampler == "cluster" and not config.cluster_parts:
        return replace(config, cluster_parts=dataset.partition(None, config.cluster_key or None).num_parts)
    return config


def project_new_training(config: TrainConfig, shards: ShardSizes) -> TrainProjection:
    """Project a new training on shards that need not exist yet. Reads nothing.

    Raises:
        InputError: the algorithm states no footprint.
    """
    axes = config.chosen_algorithm.settled_grid(config.grid, config.ranks)
    options = model_options(config, shards.num_features, shards.num_outputs)
    found = _every_memory(config, shards, options, axes)
    busiest, process = max(found, key=lambda memory: memory.total), process_memory(config)
    return TrainProjection(
        dataset=config.dataset,
        run=config.run_name,
        algorithm=config.algorithm,
        ranks=config.ranks,
        grid=list(axes.values()),
        first_epoch=0,
        epochs=config.epochs,
        peak_memory=[process + memory.total for memory in found],
        process_memory=process,
        adjacency_memory=busiest.adjacency,
        feature_memory=busiest.features,
        layer_memory=busiest.layers,
        batch_memory=busiest.batches,
        workspace_memory=None,
        mapped_bytes=_mapped_bytes(shards, config),
        read_bytes=_read_bytes(shards, config, options, axes),
        written_bytes=_checkpoint_bytes(shards, config, options)
        + _LINE_BYTES * config.epochs
        + (prediction_bytes(shards, config, embeddings=True) if config.save_embeddings else 0),
        epoch_seconds=None,
        seconds=None,
        seconds_from=None,
    )


def process_memory(config: TrainConfig) -> int:
    """Bytes of a rank without any data. Where the kernels in C are not built, every rank takes those of numba too."""
    work = config.model_kind.work
    # Grids are read with numba; batches and attention are computed with it.
    multiplies = work is not None and not work.attends
    plain = config.chosen_algorithm.reads is ROW_SHARDS and config.mode == "full" and multiplies
    return PROCESS_MEMORY + (0 if plain else NUMBA_MEMORY)


def memory_beyond_process(config: TrainConfig, shards: ShardSizes) -> list[int]:
    """Bytes of each rank in addition to the process itself. Reads nothing.

    Raises:
        InputError: the algorithm states no footprint.
    """
    axes = config.chosen_algorithm.settled_grid(config.grid, config.ranks)
    options = model_options(config, shards.num_features, shards.num_outputs)
    return [memory.total for memory in _every_memory(config, shards, options, axes)]


def _every_memory(
    config: TrainConfig, shards: ShardSizes, options: ModelOptions, axes: dict[str, int]
) -> list[_Memory]:
    """The memory of every rank."""
    if isinstance(shards, RowSizes):
        return _row_memory(shards, config, options)
    return [_grid_memory(shards, config, options, axes)] * config.ranks


def _left(start: Start, config: TrainConfig) -> int:
    return config.epochs - start.first_epoch


def _row_memory(shards: RowSizes, config: TrainConfig, options: ModelOptions) -> list[_Memory]:
    """The memory of every rank, from the sizes of its own shard."""
    n, differentiates = shards.num_vertices, not (config.model_kind.work or UNKNOWN).attends
    # The transpose of an undirected graph is the same matrix. Attention needs none, nor do batches of the whole graph.
    differentiates = differentiates and config.mode in {"full", "minibatch"}
    matrices = 1.0 if shards.symmetric or not differentiates else 2.0
    entry = shards.index_bytes + (np.dtype(config.dtype).itemsize if shards.weighted else 0)
    found, on_disk, nnz = [], config.streams_adjacency, shards.nnz
    for rank in shards.ranks:
        share = rank.own / max(1, n)
        footprint = Footprint(
            rows=share,
            held=share,
            product=share,
            received=(rank.halo + rank.sent) / max(1, n),
            adjacency=1.0,
            # With several neighbors, their products keep where the columns of each begin and end in every row.
            pointers=2 * share + (3 * rank.sent / max(1, n) if config.ranks > 2 else 0.0),
        )
        sizes = _Matrix(n, rank.nonzeros, entry, matrices)
        rows = RankRows(rank.own, rank.halo, n, nnz)
        memory = _memory(sizes, config, options, [footprint] * (len(options.pairs) + 1), rows)
        if config.samples is not None:
            # Batches are read from disk, and so is what evaluation needs.
            memory = replace(memory, adjacency=0, features=0)
        elif on_disk:
            memory = replace(memory, adjacency=_streamed(rank, entry, matrices))
        found.append(memory)
    return found


def _streamed(rank: RankSizes, entry_bytes: int, matrices: float) -> int:
    """Bytes of an adjacency on disk: row pointers, and the buffers of blocks that are on their way.

    A row that is longer than a block takes buffers of its length; manifests do not say whether there is one.
    """
    # A block may begin and end inside a chunk; the halo of a rank without any has neither pointers nor buffers.
    sides = 2 if rank.halo else 1
    buffered = min(rank.nonzeros, BLOCK_ENTRIES) + 2 * min(rank.nonzeros, CHUNK_BYTES // 4)
    return int(matrices * sides * (8 * rank.own + NUM_BUFFERS * buffered * entry_bytes))


def _footprints(config: TrainConfig, options: ModelOptions, axes: dict[str, int]) -> list[Footprint]:
    footprint = config.chosen_algorithm.footprint
    if footprint is None:
        raise InputError(f"algorithm {config.algorithm}: its memory cannot be projected, as it states no footprint")
    return footprint(axes, options.layer_plan().propagates_first)


def _grid_memory(shards: GridSizes, config: TrainConfig, options: ModelOptions, axes: dict[str, int]) -> _Memory:
    """The memory of a rank; all ranks of a grid hold about the same."""
    footprints = _footprints(config, options, axes)
    entry = 4 + (np.dtype(config.dtype).itemsize if shards.weighted else 0)
    # Windows that several layers or directions share are kept once.
    windows = _windows(shards, options, footprints, axes, kept=True)
    matrices = sum(share for _, share in windows) / footprints[0].adjacency
    # Cells differ in their nonzeros; the heaviest one is what a rank may get.
    rows = RankRows(shards.num_vertices, 0, shards.num_vertices, shards.nnz)
    return _memory(_Matrix(shards.num_vertices, shards.nnz, entry, matrices), config, options, footprints, rows)


def _windows(
    shards: GridSizes, options: ModelOptions, footprints: Sequence[Footprint], axes: dict[str, int], *, kept: bool
) -> list[tuple[str, float]]:
    """The distinct windows of the adjacency that a rank reads: the variant, and the share of its nonzeros.

    Args:
        kept: only those that it keeps.
    """
    stored = stored_variants(symmetric=shards.symmetric, double=shards.is_double)
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for layer, backward in options.layer_plan().products:
        # The window of a first product that is kept is freed.
        if kept and (layer, backward) == (0, False) and options.input_is_kept and len(options.pairs) > 1:
            continue
        variant = "even" if layer % 2 == 0 else "odd"
        # An axis of one rank splits nothing, so windows that differ by it only are the same.
        window = tuple(axis if axes[axis] > 1 else "" for axis in footprints[layer].window)
        key = stored[TRANSPOSED[variant] if backward else variant], window[::-1] if backward else window
        found[key] = footprints[layer].adjacency
    return [(variant, share) for (variant, _), share in found.items()]


def _memory(
    sizes: _Matrix, config: TrainConfig, options: ModelOptions, layers: Sequence[Footprint], rank: RankRows
) -> _Memory:
    """The memory of one rank with these shares."""
    word, n = config.feature_bytes, sizes.num_vertices
    model = config.model_kind.work or UNKNOWN
    entries = layers[0].adjacency * sizes.nnz
    arriving = layers[0].arriving * sizes.nnz * sizes.entry_bytes
    # Blocks with few entries list their rows, each with an offset, instead of a pointer for every row.
    pointers = min(8 * layers[0].pointers * n, 16 * entries)
    adjacency = arriving + sizes.matrices * (entries * sizes.entry_bytes + pointers)
    rows = _ROW_BYTES * max(each.rows for each in layers) * n
    feature = layers[0].held * n * options.dims[0] * word
    kept_product = layers[0].product * n * options.dims[0] * word if options.input_is_kept else 0.0
    stays = 0.0 if options.input_is_kept and not model.keeps_features else feature
    # Trained features have a gradient and moments; checkpoints are written from a copy of the features and moments.
    copies = _COPIES[config.optimizer]
    features = kept_product + stays + rows + (2 * copies * feature if config.train_features else 0)
    # Weights have a gradient, which is also summed in one buffer; the rank that writes them to disk copies them.
    layer_weights = (2 * copies + 2) * _num_weights(config, options) * np.dtype(config.dtype).itemsize
    # While they load, a rank's share of the features is split off, and multiplied with the first matrix.
    first = layers[0]
    whole = n * options.dims[0] * word
    loading = feature + (first.held + first.product) * whole + first.arriving_bytes(whole)
    batch = batch_sizes(config, rank, len(options.pairs)) if n else None
    if batch is None:
        if reuses_memory(config):
            peak, saved = reused_peak(config, options, layers, n * word)
        else:
            peak, saved = _layer_peak(config, options, layers, model, n * word, entries * word)
        prepared = 0
    else:
        # A model is evaluated on the whole graph, and saves nothing for a backward pass there.
        of_batch = batch.footprints(n)
        trained = _layer_peak(config, options, of_batch, model, n * word, max(batch.nonzeros) * word)
        peak, saved = max(trained), _evaluation_peak(options, layers, model, n * word)
        # No product is formed in advance. Features are read in the dtype of the parameters, and then narrowed.
        loading = feature * np.dtype(config.dtype).itemsize / word + (feature if config.precision == "bf16" else 0.0)
        if config.samples is not None:
            # Nor is there a whole matrix in memory: rows are evaluated some at a time.
            saved, loading = min(saved, _LAYERWISE * GATHERED * word), 0.0
        if not config.evaluates:
            saved = 0.0
        prepared = prepared_bytes(config, rank, batch, sizes.entry_bytes, options.dims[0] * word)
    return _Memory(int(adjacency), int(features), int(max(peak + layer_weights, saved, loading - features)), prepared)


def _evaluation_peak(options: ModelOptions, layers: Sequence[Footprint], model: ModelWork, column: float) -> float:
    """Bytes at the worst moment of an evaluation; ``column`` as for :func:`_layer_peak`."""
    peak = 0.0
    for layer, (before, after) in enumerate(options.pairs):
        here, output = layers[layer], layers[layer + 1].held * column * after
        first = options.propagates_first(layer)
        width = before if first else after
        given = here.held * column * before if layer else 0.0
        product = here.product * column * width
        # What moves are the given rows themselves, or their product with the weight.
        moving = here.arriving_bytes(column * width) + (0.0 if first else here.held * column * width)
        # Those that arrived are freed before the product is multiplied with the weight.
        peak = max(peak, given + product + max(moving, (1 + model.passing - ModelWork.passing) * output))
    return peak


def _mapped_bytes(shards: ShardSizes, config: TrainConfig) -> int:
    """Bytes of the uncompressed copies that the configured mode maps: of the graph, and of the vertex data."""
    if config.mode not in {"subgraph", "neighbor"}:
        return 0
    n = shards.num_vertices
    entry = (4 if n <= INT32_WIDTH else 8) + (np.dtype(config.dtype).itemsize if shards.weighted else 0)
    # Row pointers, and whether a row has a loop.
    graph = 9 * n + entry * shards.nnz
    vertices = n * (4 * shards.num_features + 5)
    # Ranks that draw neighbors fetch features from their owners, unless they are packed with the batches.
    return graph + (vertices if config.mode == "subgraph" or config.samples else 0)


def _layer_peak(
    config: TrainConfig,
    options: ModelOptions,
    layers: Sequence[Footprint],
    model: ModelWork,
    column: float,
    entries: float,
) -> tuple[float, float]:
    """Bytes at the worst moment of an epoch, and those saved for the backward pass at its start.

    Args:
        column: bytes of one column of a whole dense matrix.
        entries: bytes of one number per nonzero of this rank.
    """
    saved, peak = 0.0, 0.0
    drops = config.dropout > 0
    # Sums of several products are float32, and then rounded.
    sums = 3 if config.precision == "bf16" and config.ranks > 1 else 1
    for layer, (before, after) in enumerate(options.pairs):
        here, output = layers[layer], layers[layer + 1].held * column
        width = after * config.heads if model.attends and layer == len(options.pairs) - 1 else after
        first = options.propagates_first(layer)
        is_kept = layer == 0 and options.input_is_kept
        product = (before if first else width) * column
        moving = (here.held + sums * here.product) * product + here.arriving_bytes(product)
        if model.attends:
            # The transformed rows of this rank and of its halo, and the scores of every edge and head.
            scores = config.heads * entries
            peak = max(peak, saved + 2 * moving + 2 * scores)
            saved += moving + scores
        elif not is_kept:
            # Forward: the scaled rows, those that arrive, and the product. Backward there is a gradient as well.
            extra = (model.passing - ModelWork.passing) * output * after
            peak = max(peak, saved + moving + (here.product * product + extra if layer else 0))
            saved += here.product * product if first else 0
        if layer == len(options.pairs) - 1:
            # Scores, what the loss makes of them, and the gradients of both; they are as wide as sums.
            output *= np.dtype(config.dtype).itemsize / config.feature_bytes
            peak = max(peak, saved + 4 * output * width)
            saved += 2 * output * width
            continue
        hidden = 1 + model.kept + (config.norm != "none") + drops
        peak = max(peak, saved + (hidden + model.passing) * output * width)
        saved += hidden * output * width
    return peak, saved


def _read_bytes(shards: ShardSizes, config: TrainConfig, options: ModelOptions, axes: dict[str, int]) -> int:
    """Stored bytes that the busiest rank reads."""
    if isinstance(shards, RowSizes):
        return max(shards.ranks, key=lambda rank: rank.nonzeros).read_bytes
    footprints = _footprints(config, options, axes)
    windows = _windows(shards, options, footprints, axes, kept=False)
    cells = sum(share * shards.variant_bytes[variant] for variant, share in windows)
    # Features are read in one order only, and ranks that hold other columns of the same rows share their reading.
    return int(cells + footprints[0].held * shards.order_bytes)


def _checkpoint_bytes(shards: ShardSizes, config: TrainConfig, options: ModelOptions) -> int:
    """Bytes of the checkpoints that stay on disk."""
    parameters = _num_weights(config, options)
    parameters += shards.num_vertices * options.dims[0] if config.train_features else 0
    kept = min(config.keep, config.epochs) + (config.keep_best != "none")
    return kept * _COPIES[config.optimizer] * parameters * np.dtype(config.dtype).itemsize


def _num_weights(config: TrainConfig, options: ModelOptions) -> int:
    # Two weights of a layer's shape are the most that a model has; the attention vectors are small.
    weights = (config.model_kind.work or UNKNOWN).weights
    return sum(weights * before * after + after for before, after in options.pairs)


def prediction_bytes(shards: ShardSizes, config: TrainConfig, *, embeddings: bool) -> int:
    """Bytes of the class, or the predicted numbers, of every vertex, with its scores and perhaps its embedding."""
    options = model_options(config, shards.num_features, shards.num_outputs)
    embedding = options.dims[-2] if embeddings and len(options.pairs) > 1 else 0
    return shards.num_vertices * ((options.dims[-1] + embedding) * np.dtype(config.dtype).itemsize + 4)


#: Fields that decide how long an epoch takes.
_SIZE_FIELDS = (
    "algorithm", "ranks", "grid", "model", "hidden", "heads", "precision", "norm", "dropout", "input_dropout",
    "product_order", "train_features", "threads", "adjacency",
    *(field.name for field in fields(ModeConfig) if not field.metadata["free"]),
)  # fmt: skip


def _known_seconds(dataset: Dataset, config: TrainConfig, shards: str) -> tuple[float | None, str | None]:
    """The median time of an epoch in an earlier run of the same size, and the name of that run."""
    own = run_of(config).name
    # The run itself says most about its own epochs.
    for name in sorted(dataset.runs(), key=lambda name: name != own):
        run = Run(dataset.run_path(name))
        try:
            before, lines = TrainConfig.of_run(run), run.metrics()
        except GnnloomError:
            continue  # a damaged run, or one of a model that is not installed, has no time
        if not lines or run.inputs().get("shards") != shards:
            continue
        if all(getattr(before, field) == getattr(config, field) for field in _SIZE_FIELDS):
            return statistics.median(line["seconds"] for line in lines), name
    return None, None
