"""Estimates training on shards that do not exist yet: for recipes, and for comparing candidates in the planner.

An estimate, from the shares of rows and of nonzeros that an algorithm states; once there are shards, a training is
rehearsed instead, see :mod:`gnnloom.trainer.training.rehearsal.rank_memory`. Counts the results that the backward pass
needs, and what exists in addition to them at the worst moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gnnloom.storage.errors import InputError
from gnnloom.storage.shards.grid_variants import TRANSPOSED, stored_variants
from gnnloom.trainer.algorithms.workload import Footprint
from gnnloom.trainer.config.model_config import ModelConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.kind import UNKNOWN, ModelWork
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.modes.kind import BatchSizes, RankRows
from gnnloom.trainer.planner.pair_steps import PairFacts
from gnnloom.trainer.tasks.options import BATCH_PAIRS
from gnnloom.trainer.training.rehearsal.projection import (
    LINE_BYTES,
    TrainProjection,
    kept_checkpoints,
    prediction_bytes,
    process_memory,
)
from gnnloom.trainer.training.rehearsal.shard_sizes import GridSizes, RowShardSizes, RowSizes, ShardSizes

#: Bytes per row in addition to features: id, label, split, factors of the normalization, masks of the splits.
_ROW_BYTES = 40
#: Copies of every parameter in a checkpoint, by optimizer: itself, and its moments.
_COPIES = {"adam": 3, "sgd": 1}
#: Scores, intermediate values of the loss, and the gradients of both.
_SCORES = 4
#: Copies of the rows of a step's ends: fetched rows, and their gradients as they are summed and sent back.
_END_ROWS = 3


def project_new_training(
    config: TrainConfig, shards: ShardSizes, num_inputs: int = 1, pairs: PairFacts | None = None
) -> TrainProjection:
    """Project the memory of a new run on shards that need not exist yet. Reads nothing.

    Args:
        pairs: number of training pairs, for a task on pairs.
        num_inputs: number of matrices with ``num_features`` columns each in the input of the model.

    Raises:
        InputError: the algorithm states no footprint.
    """
    axes = config.algorithm.axes
    options = config.options_of_model(shards.num_features, shards.num_outputs, num_inputs)
    if isinstance(shards, RowSizes):
        found = [_Rank.of_row_shard(shards, rank, config, options, pairs) for rank in shards.ranks]
        read = max(shards.ranks, key=lambda rank: rank.nonzeros).read_bytes
    else:
        found = [_Rank.of_grid(shards, config, options, axes, pairs)] * config.algorithm.ranks
        windows = _windows(shards, options, found[0].layers, axes)
        read = int(windows / len(shards.variant_bytes) * sum(shards.variant_bytes.values()))
        read += int(found[0].layers[0].held * shards.order_bytes)
    process = process_memory(config)
    busiest = max(found, key=lambda rank: rank.total)
    predicted = prediction_bytes(shards, config.model, embeddings=True) if config.run.save_embeddings else 0
    weights = _num_weights(config.model, options) + (
        shards.num_vertices * options.dims[0] if config.model.input_is_trained else 0
    )
    checkpoint = _COPIES[config.optimization.optimizer] * weights * np.dtype(config.model.dtype).itemsize
    return TrainProjection(
        dataset=config.data.dataset,
        run=config.run_name,
        algorithm=config.algorithm.name,
        ranks=config.algorithm.ranks,
        grid=list(axes.values()),
        first_epoch=0,
        epochs=config.optimization.epochs,
        peak_memory=[process + rank.total for rank in found],
        process_memory=process,
        adjacency_memory=busiest.adjacency,
        feature_memory=busiest.features,
        workspace_memory=busiest.workspace,
        batch_memory=busiest.batches,
        mapped_bytes=0,
        read_bytes=read,
        written_bytes=kept_checkpoints(config) * checkpoint + LINE_BYTES * config.optimization.epochs + predicted,
    )


class _Rank:
    """Bytes of one rank by purpose, beyond the process itself.

    Attributes:
        layers: its shares in every layer, and of the output.
    """

    def __init__(
        self,
        config: TrainConfig,
        options: ModelOptions,
        layers: Sequence[Footprint],
        rows: RankRows,
        entries: float,
        matrix_bytes: float,
        pairs: PairFacts | None,
    ) -> None:
        """Sum up.

        Args:
            entries: nonzeros that a layer multiplies with.
            matrix_bytes: of all matrices.
        """
        self.layers = layers
        word, n = config.model.feature_bytes, rows.num_vertices
        width, first = options.dims[0] * word, layers[0]
        batch, size = config.mode.kind.batch, np.dtype(config.model.dtype).itemsize
        stated, of_pairs = config.mode.own_options(), 0.0
        if pairs is not None:
            if batch is not None:
                # Every rank has batches of its own.
                pairs = replace(pairs, step_pairs=config.algorithm.ranks * (config.task.link_batch or BATCH_PAIRS))
            seeds = max(1, min(pairs.ends_on(config.algorithm.ranks), n))
            stated["batch_size"], rows = seeds, replace(rows, training=seeds)
            of_pairs = pairs.bytes_on(config.algorithm.ranks) + _END_ROWS * seeds * options.dims[-1] * word
        sizes = batch(stated, len(options.pairs), rows) if batch is not None and n else None
        # Rows are read from disk, a batch at a time.
        on_disk = config.mode.kind.reads_rows or config.mode.maps_inputs
        stays = 0.0 if on_disk else first.held * n * width
        kept = first.product * n * width if options.input_is_kept else 0.0
        copies = _COPIES[config.optimization.optimizer]
        trained = 2 * copies * first.held * n * options.dims[0] * size if config.model.input_is_trained else 0
        self.adjacency = int(matrix_bytes)
        self.features = int((0.0 if kept else stays) + trained + _ROW_BYTES * max(each.rows for each in layers) * n)
        self.batches = 0 if sizes is None else _prepared(config, sizes, width)
        weights = (2 * copies + 2) * _num_weights(config.model, options) * size
        # While they load, a rank's share of the features is split off, and multiplied with the first matrix.
        loading = 2 * stays + kept + (0.0 if on_disk else first.arriving_bytes(n * width))
        held = layers if sizes is None else _shares(sizes, n)
        peak = kept + _layer_peak(
            config.model,
            config.algorithm.ranks,
            options,
            held,
            n * word,
            (entries if sizes is None else sizes.nonzeros[0]) * word,
        )
        self.workspace = int(max(peak + weights + of_pairs, loading - self.features))

    @property
    def total(self) -> int:
        return self.adjacency + self.features + self.workspace + self.batches

    @classmethod
    def of_row_shard(
        cls, shards: RowSizes, rank: RowShardSizes, config: TrainConfig, options: ModelOptions, pairs: PairFacts | None
    ) -> _Rank:
        n = max(1, shards.num_vertices)
        share, work = rank.own / n, config.model.work or UNKNOWN
        # The transpose of an undirected graph is the same matrix; attention needs none, and models on rows no matrix.
        matrices = 0 if config.model.kind.is_rowwise else 1 if shards.symmetric or work.attends else 2
        footprint = Footprint(
            rows=share, held=share, product=share, received=(rank.halo + rank.sent) / n, adjacency=1.0, pointers=0.0
        )
        entry = shards.index_bytes + _weight_bytes(shards, config.model)
        # A product with each neighbor's columns keeps where they begin and end in every row.
        pointers = 16 * rank.own + (24 * rank.sent if config.algorithm.ranks > 2 else 0)
        row_bytes = 0 if config.model.embed else shards.num_features * config.model.feature_bytes
        rows = RankRows(rank.own, rank.halo, shards.num_vertices, shards.nnz, row_bytes, rank.own)
        matrix = matrices * (rank.nonzeros * entry + pointers)
        return cls(config, options, [footprint] * (len(options.pairs) + 1), rows, rank.nonzeros, matrix, pairs)

    @classmethod
    def of_grid(
        cls,
        shards: GridSizes,
        config: TrainConfig,
        options: ModelOptions,
        axes: dict[str, int],
        pairs: PairFacts | None,
    ) -> _Rank:
        footprint = config.algorithm.kind.footprint
        if footprint is None:
            raise InputError(
                f"algorithm {config.algorithm.name}: its memory cannot be projected, because it states no footprint"
            )
        layers = footprint(axes, options.layer_plan().propagates_first)
        n, row_bytes = (
            shards.num_vertices,
            0 if config.model.embed else shards.num_features * config.model.feature_bytes,
        )
        entry, entries = 4 + _weight_bytes(shards, config.model), layers[0].adjacency * shards.nnz
        matrices = _windows(shards, options, layers, axes) / layers[0].adjacency
        # Blocks with few entries list their rows, each with an offset, instead of a pointer for every row.
        pointers = min(8 * layers[0].pointers * n, 16 * entries)
        matrix = matrices * (entries * entry + pointers) + layers[0].arriving * shards.nnz * entry
        return cls(config, options, layers, RankRows(n, 0, n, shards.nnz, row_bytes, n), entries, matrix, pairs)


def _weight_bytes(shards: ShardSizes, config: ModelConfig) -> int:
    """Bytes of the weight of an edge."""
    return np.dtype(config.dtype).itemsize if shards.weighted else 0


def _windows(shards: GridSizes, options: ModelOptions, layers: Sequence[Footprint], axes: dict[str, int]) -> float:
    """Nonzeros of the distinct windows of the adjacency that a rank reads, over the nonzeros of one variant."""
    stored = stored_variants(symmetric=shards.symmetric, double=shards.is_double)
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for layer, backward in options.layer_plan().products:
        variant = "even" if layer % 2 == 0 else "odd"
        # An axis of one rank splits nothing, so windows that differ by it only are the same.
        window = tuple(axis if axes[axis] > 1 else "" for axis in layers[layer].window)
        key = stored[TRANSPOSED[variant] if backward else variant], window[::-1] if backward else window
        found[key] = layers[layer].adjacency
    return sum(found.values())


def _shares(batch: BatchSizes, num_vertices: int) -> list[Footprint]:
    """Footprint of a batch in each layer, as shares of the whole graph's rows, and of the output."""
    rows = [each / num_vertices for each in batch.rows]
    received = batch.received / num_vertices
    return [
        Footprint(rows=held, held=held, product=product, received=received, adjacency=0.0, pointers=0.0)
        for held, product in zip(rows, [*rows[1:], rows[-1]], strict=True)
    ]


def _prepared(config: TrainConfig, batch: BatchSizes, row_bytes: int) -> int:
    """Bytes of the batches that are prepared, and of the one in use with its transpose."""
    structure = 24 * (batch.rows[0] + batch.received) + 4 * sum(batch.nonzeros)
    features = batch.rows[0] * row_bytes
    ahead = features if batch.has_features and not config.model.embed else 0
    return int(batch.kept_bytes + features + (config.mode.pool + 2) * (structure + ahead))


def _layer_peak(
    config: ModelConfig,
    num_ranks: int,
    options: ModelOptions,
    layers: Sequence[Footprint],
    column: float,
    entries: float,
) -> float:
    """Bytes at the peak of an epoch, which is in the forward pass: gradients then replace saved tensors.

    Args:
        column: bytes of one column of a whole dense matrix.
        entries: bytes of one number per nonzero of this rank.
    """
    model = config.work or UNKNOWN
    # Sums of several products are float32, and then rounded.
    sums = 3 if config.precision == "bf16" and num_ranks > 1 else 1
    # Beside the output itself, which features a layer lets through is one bit each.
    extra = model.kept + (config.norm != "none") + config.residual + 1 / (8 * config.feature_bytes)
    saved = peak = given = 0.0
    for layer, (before, after) in enumerate(options.pairs):
        here, output = layers[layer], layers[layer + 1].held * column * after
        first, is_last = options.propagates_first(layer), layer == len(options.pairs) - 1
        heads = config.heads if model.attends and is_last else 1
        width = (before if first else after * heads) * column
        product = here.product * width
        if layer > 0 or not options.input_is_kept:
            moving = here.arriving_bytes(width) + (0.0 if first else here.held * width)
            scores = 2 * config.heads * entries if model.attends else 0.0
            peak = max(peak, saved + moving + sums * product + scores)
            saved += moving + scores / 2 if model.attends else 0.0
        if layer > 0 and first and not model.attends:
            # The product is saved instead of the layer's input.
            saved += product - (0.0 if is_last or model.weights > 1 else given)
        peak = max(peak, saved + (model.passing - ModelWork.passing + 1) * output)
        if is_last:
            # Scores are as wide as sums.
            output *= heads * np.dtype(config.dtype).itemsize / config.feature_bytes
            peak = max(peak, saved + _SCORES * output)
        given = output
        saved += output * (1 + extra)
    return max(peak, saved)


def _num_weights(config: ModelConfig, options: ModelOptions) -> int:
    weights = (config.work or UNKNOWN).weights
    return sum(weights * before * after + after for before, after in options.pairs)
