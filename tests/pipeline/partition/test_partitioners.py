"""Partitioners as descriptors: everything that users see is derived from them, and one file adds one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.pipeline.partition import options as options_module
from gnnloom.pipeline.partition.options import METHODS, PartitionOptions
from gnnloom.pipeline.partition.partitioner import PartitionProblem
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError, PartitionerError
from support.graphs import random_adjacency, store_graph

LIGHT = """
import sys
from gnnloom.pipeline.partition.options import PartitionOptions
room = "gnnloom.pipeline.partition"
natives = "mtkahypar", "kahypar", "pymetis", "kaminpar"
heavy = (*natives, f"{room}.multilevel.ways", f"{room}.stochastic", f"{room}.native.run")
print([name for name in heavy if name in sys.modules])
"""


def test_options_that_a_partitioner_does_not_have_are_refused() -> None:
    with pytest.raises(InputError, match=r"method_options 'first=2': "):
        PartitionOptions(3, "block", method_options=("first=2",))


def test_listing_the_partitioners_loads_no_implementation() -> None:
    command = [sys.executable, "-c", LIGHT]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize("wrong", [-1, 3])
def test_parts_out_of_range_are_refused_before_they_are_counted(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    def fill(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
        part[problem.options.parts] = wrong
        return {}

    broken = MappingProxyType({"block": replace(METHODS["block"], fill=fill)})
    monkeypatch.setattr(options_module, "METHODS", broken)
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(9, 20, 0, symmetric=True), symmetric=True)
    with pytest.raises(PartitionerError, match=rf"method block: parts from .*{wrong}.*, expected 0\.\.2"):
        partition_graph(dataset, graph, PartitionOptions(3, "block"), InProcessCluster())


def test_every_partitioner_describes_itself() -> None:
    for name, method in METHODS.items():
        assert name == method.name
        assert method.help.endswith(".")
        assert method.models
        assert len(set(method.preset_names)) == len(method.presets)
        assert bool(method.package) == bool(method.install) == bool(method.child_module)
        assert all(preset.help for preset in method.presets if preset.name)
