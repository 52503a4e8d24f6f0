"""An upper bound of a training's memory by the sizes of the graph alone, for graphs that are tiny beside the memory.

It is many times what a training takes, and costs nothing: where it fits, no training needs a rehearsal to find out that
it fits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gnnloom.storage.artifacts.links import Links
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.links.decoders.registry import DECODERS
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.modes.kind import BatchSizes
from gnnloom.trainer.tasks.open_links import open_links
from gnnloom.trainer.tasks.options import AUTO
from gnnloom.trainer.training.rehearsal.rank_rows import rank_rows

#: Arrays of every shape at one time, of 8 bytes a number: far more than the layers of any of gnnloom's models keep.
_COPIES: Final = 16
#: Columns of arrays that no layer's width decides: ids, offsets, factors, masks.
_COLUMNS: Final = 64
#: What does not depend on the graph: objects of Python, code that is loaded.
_FIXED: Final = 128 << 20


def memory_bound(opened: OpenedRun, rank: int) -> int | None:
    """Bytes that a rank certainly stays below, beyond the process itself. Reads manifests; communicates nothing.

    None for models, decoders and losses from elsewhere, which may take any memory, and for modes that state no sizes.

    Args:
        opened: with the options that samples or a partition decide.
    """
    config = opened.config
    if not _is_ours(config):
        return None
    shards = opened.shards.shards
    rows = rank_rows(config, opened.dataset, shards, rank, shards.num_vertices)
    # A row that several ranks need is sent to each of them.
    count = (1 + config.ranks) * rows.num_vertices + rows.nnz
    batch, inputs = config.mode_kind.batch, len(config.steps) if config.mode_kind.reads_rows else 1
    # What this rank has of the vertices, so that no list of another rank is read.
    task = config.task_of(opened.shards.vertex_rows("rows", (0, 0)), shards, shards.artifact.path)
    options = config.options_of_model(shards.num_features, config.output_width(task, shards), inputs)
    kept = 0.0
    if batch is not None:
        stated = config.own_mode_options()
        if task.on_pairs:
            # At most all vertices are ends of the pairs of a batch.
            stated["batch_size"], rows = rows.num_vertices, replace(rows, training=rows.num_vertices)
        sizes = batch(stated, len(options.pairs), rows)
        # One is drawn by every thread, and at most all of the pool wait for their use.
        count += round((1 + config.pool + config.sampler_threads) * _numbers(sizes))
        kept = sizes.kept_bytes
    if task.on_pairs:
        artifact, key = shards.artifact, config.own_task_options(task)["links"]
        links = open_links(task, opened.dataset, artifact.inputs["graph"], key, artifact.path)
        count += _pair_rows(links, config)
    widths = config.heads * sum(options.dims) + _COLUMNS
    numbers = count * widths + config.heads * _num_weights(options)
    return int(_COPIES * 8 * numbers + kept) + _FIXED


def _is_ours(config: TrainConfig) -> bool:
    """Whether nothing that computes is from elsewhere, and what a mode does in batches is stated."""
    if config.model_kind.work is None or config.is_own_loss or config.metric != "none":
        return False
    if config.on_pairs and config.decoder not in {AUTO, *DECODERS}:
        return False
    return not config.mode_kind.is_sampled or config.mode_kind.batch is not None


def _numbers(sizes: BatchSizes) -> float:
    """Rows and nonzeros of a batch, and rows on their way to it."""
    moving = sizes.received + sizes.asked + sizes.copied
    return sum(sizes.rows) + sum(sizes.nonzeros) + moving


def _pair_rows(links: Links, config: TrainConfig) -> int:
    """Ends of all pairs, of what they are compared with in training, and of their stored negatives."""
    count = (2 + 2 * config.negatives) * links.num_pairs["train"]
    for split in ("valid", "test"):
        each = 2 + links.num_negatives(split) + links.num_replaced(split)
        count += each * links.num_pairs[split] + 2 * links.num_pooled(split)
    return count


def _num_weights(options: ModelOptions) -> int:
    # Layers may have several matrices, and the decoder its own.
    return 4 * sum(before * after for before, after in options.pairs) + 4 * options.dims[-1] ** 2
