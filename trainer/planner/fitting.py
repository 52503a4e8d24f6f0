"""Chooses the place of a run's data and its recomputation, so that its ranks fit a memory limit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import product
from typing import Any, Final

from gnnloom.storage.errors import BudgetError, InputError
from gnnloom.storage.machine_memory import memory_text
from gnnloom.storage.option import options_of
from gnnloom.storage.wording import shell_command
from gnnloom.trainer.config.continuation import configure, find_start
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.rehearsal.projection import opened_run, process_memory, project_training

logger = logging.getLogger(__name__)

#: Values of options that reduce the memory of a training run. Each costs more than all previous ones together: the
#: system keeps files in the memory that is free, a recomputed layer is one product with a weight, an adjacency on disk
#: is decompressed for every product, and bf16 rounds.
SMALLER: Final[Mapping[str, Any]] = {"inputs": "disk", "recompute": True, "adjacency": "disk", "precision": "bf16"}
#: Pages of mapped files without which every access would wait for the disk.
_PAGES: Final = 64 << 20
#: Number of attempts to find the memory that batches leave for an evaluation from disk.
_ATTEMPTS: Final = 10


def settle_memory(given: Mapping[str, Any], memory: int, *, restart: bool = False) -> dict[str, Any]:
    """The fields of a training run that fits a memory limit; logs the choice and its reason. Reads manifests.

    Given options stay unchanged. Of the other options in :data:`SMALLER`, the cheapest combination is chosen with which
    no rank exceeds the limit; an existing run keeps the options that affect its result.

    Args:
        given: fields of the configuration, ``catalog`` and ``dataset`` among them.
        memory: bytes of each rank, the process included.
        restart: the run starts over.

    Raises:
        BudgetError: no combination fits; the message states the smallest memory.
        NotFoundError, ExistsError, InputError: the training would be refused, or its memory is unknown.
    """
    config = configure(given, restart=restart)
    opened = opened_run(config, restart=restart)
    if find_start(opened.run, opened.config, opened.inputs, restart=restart).is_finished:
        return dict(given)
    fixed = () if restart or not opened.run.exists else tuple(opened.config.identity())
    names = [name for name in SMALLER if name not in given and name not in fixed]
    usual = {name: option.default for name, option in options_of(TrainConfig).items() if name in names}
    needed = dict[tuple[str, ...], int]()
    for chosen in sorted(product((False, True), repeat=len(names)), key=lambda each: each[::-1]):
        smaller = tuple(name for name, is_smaller in zip(names, chosen, strict=True) if is_smaller)
        fields = {**given, **usual, **{name: SMALLER[name] for name in smaller}}
        try:
            fields, needed[smaller] = _within(fields, memory, restart=restart)
        except BudgetError:
            continue
        except InputError:
            # Not every model, mode and algorithm has every option.
            if not smaller:
                raise
            continue
        if needed[smaller] <= memory:
            _report(smaller, needed, memory)
            return fields
    if not needed:
        raise BudgetError(
            f"memory {memory_text(memory)}: not even an evaluation in parts fits; give each rank more memory"
        )
    least = min(needed, key=lambda smaller: needed[smaller])
    raise BudgetError(
        f"memory {memory_text(memory)}: a rank takes {memory_text(needed[least])} at least, with {_shown(least)};"
        " give each rank more, or choose more ranks, smaller layers (--hidden) or a mode that samples (--mode neighbor)"
    )


def _within(fields: Mapping[str, Any], memory: int, *, restart: bool) -> tuple[dict[str, Any], int]:
    """The fields of a training run whose evaluation leaves room for other data, and the memory of its ranks.

    Raises:
        BudgetError: not even an evaluation in parts fits.
        NotFoundError, ExistsError, InputError: the training would be refused, or its memory is unknown.
    """
    fields = _with_frequent_rows(fields, memory, restart=restart)
    config = configure(fields, restart=restart)
    of_edges = config.model.kind.on_edges
    if "evaluation_memory" in fields or of_edges or not (config.run.evaluates and config.mode.reads_batches):
        return dict(fields), _needed(config, restart=restart)
    least, most = 0, memory - process_memory(config)
    for attempt in range(_ATTEMPTS if most > 0 else 0):
        # The first attempt gives it all remaining memory; batches in memory, and an evaluation that needs less, reduce
        # it.
        some = most if not attempt else (least + most) // 2
        found = {**fields, "evaluation_memory": some}
        try:
            needed = _needed(configure(found, restart=restart), restart=restart)
        except BudgetError:
            least = some
            continue
        if needed <= memory:
            return found, needed
        most = some
    raise BudgetError(f"memory {memory_text(memory)}: too little for an evaluation in parts")


def _with_frequent_rows(fields: Mapping[str, Any], memory: int, *, restart: bool) -> Mapping[str, Any]:
    """The fields with memory for features of frequent vertices, if batches read features from disk.

    It is half of what the epochs leave; the other half is for pages of the graph, and for an evaluation.
    """
    config = configure(fields, restart=restart)
    if "cache_memory" in fields or not config.mode.keeps_rows:
        return fields
    epochs = {**fields, "cache_memory": 0, "eval_every": 0, "final_eval": False}
    left = memory - _needed(configure(epochs, restart=restart), restart=restart)
    return {**fields, "cache_memory": max(0, left // 2)}


def _needed(config: TrainConfig, *, restart: bool) -> int:
    """Bytes of the busiest rank, with some pages of the files that it maps."""
    found = project_training(config, restart=restart)
    return max(found.peak_memory) + min(found.mapped_bytes, _PAGES)


def _report(smaller: tuple[str, ...], needed: Mapping[tuple[str, ...], int], memory: int) -> None:
    """Log the choice, and the memory with the usual options."""
    takes = f"{_shown(smaller)}, with which a rank takes {memory_text(needed[smaller])}"
    usual = needed.get(())
    if not smaller:
        logger.info("memory %s: %s", memory_text(memory), takes)
    elif usual is None:
        logger.warning("memory %s: %s", memory_text(memory), takes)
    else:
        logger.warning("memory %s: %s; otherwise %s", memory_text(memory), takes, memory_text(usual))


def _shown(smaller: tuple[str, ...]) -> str:
    """Options as on the command line."""
    flags = [f"--{name}" if SMALLER[name] is True else f"--{name} {SMALLER[name]}" for name in smaller]
    return shell_command(*" ".join(flags).split()) if flags else "the usual options"
