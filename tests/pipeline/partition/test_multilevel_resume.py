"""After a kill, the multilevel method begins again: no byte of what it left is read, however damaged it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gnnloom.pipeline.partition.partitioner import LevelSteps
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from support.graphs import random_adjacency, store_graph

#: Everything is done in rounds, and there are few rounds.
STEPS = LevelSteps(few_pins=0, random_passes=1, cluster_passes=1, rounds=4)


class _Killed(InProcessCluster):
    """Ends at a task of a function, when all files are still there, as after a kill."""

    def __init__(self, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._function, self._monkeypatch = function, monkeypatch

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            yield function(item)
            if function.__name__ == self._function:
                self._monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
                raise KeyboardInterrupt


def partition(catalog: Catalog, name: str, cluster: InProcessCluster) -> tuple[str, Any]:
    """Digest and figures of the partition of a graph that is the same for every name."""
    if name not in catalog:
        adjacency = random_adjacency(600, 2400, 1, symmetric=True)
        store_graph(catalog.create(name), adjacency, symmetric=True, num_blocks=3)
    options = PartitionOptions(4, "multilevel", preset="streaming")
    found = partition_graph(catalog[name], catalog[name].graph(), options, cluster, steps=STEPS)
    return found.artifact.digest, found.quality


@pytest.mark.slow
def test_nothing_that_a_killed_run_left_is_read_but_the_stored_parts(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = partition(catalog, "whole", InProcessCluster())
    # While clusters form, nets are sorted, parts are refined, and while the exchange is counted.
    for function in ("_change", "_scatter", "_change_masks", "count_block"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            partition(catalog, f"killed{function}", _Killed(function, patch))
        left = [path for path in _left(catalog[f"killed{function}"].path) if path.stat().st_size]
        assert left
        for path in left:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        assert partition(catalog, f"killed{function}", InProcessCluster()) == expected


def _left(dataset: Path) -> list[Path]:
    """Files in work folders, without the plan and the records, which have checksums of their own."""
    files = (path for path in dataset.glob("partition/*/.work/**/*") if path.is_file())
    return [path for path in files if path.name != "plan.json" and path.parent.name != "parts"]
