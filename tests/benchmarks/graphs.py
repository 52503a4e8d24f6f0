"""The datasets of bench_epoch and bench_algorithms, in a catalog that can be kept."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gnnloom

NUM_FEATURES, NUM_CLASSES = 128, 32


@contextmanager
def catalog_in(kept: Path | None, folder: Path | None) -> Iterator[Path]:
    """A catalog: ``kept`` for good, or a temporary one in ``folder`` (by default, in the system's)."""
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix="bench-") as temporary:
        yield Path(temporary)


def generated(catalog: Path, name: str, generator: str, **options: Any) -> gnnloom.Dataset:
    """A graph with random features and classes, which is made unless the catalog has it."""
    dataset = gnnloom.generate(name, generator, catalog=catalog, workers=0, **options)
    return gnnloom.features(dataset, "random", workers=0, dim=NUM_FEATURES, classes=NUM_CLASSES)


def row_shards(dataset: gnnloom.Dataset, parts: int, method: str = "auto") -> str:
    """The key of row shards, which are made unless the catalog has them."""
    partition = gnnloom.partition(dataset, parts=parts, method=method, workers=0)
    return gnnloom.shard(dataset, parts, partition=partition.artifact.key, workers=0).artifact.key
