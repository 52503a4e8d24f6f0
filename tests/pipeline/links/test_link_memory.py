"""Links are drawn and looked up within the memory of a worker, whatever the skew of the graph."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.sources.generators.rmat import RmatEdges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.files import MAPPED, tree_bytes

MIB = 1 << 20

#: Draws links with a limit; prints the peak, and how many edges were held out.
_CAPPED = """
import json, resource, sys
from pathlib import Path
import numpy as np
memory, folder = int(sys.argv[1]), Path(sys.argv[2])
from gnnloom.storage import Catalog
def limit(count):
    resource.setrlimit(resource.RLIMIT_DATA, (count, resource.RLIM_INFINITY))
limit(memory)
from gnnloom.pipeline.links.given.given_stage import GivenLinks, store_links
from gnnloom.pipeline.links.options import DrawOptions, FileOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.tasks.cluster import InProcessCluster
dataset, cluster = Catalog(folder)["g"], InProcessCluster(memory)
(ingested,) = dataset.ingested_graphs()
graph = dataset.graph(ingested.key)
links = draw_links(dataset, graph, DrawOptions(disjoint=0.5), cluster)
limit(resource.RLIM_INFINITY)
for split in ("train", "valid", "test"):
    np.save(folder / f"{split}.npy", links.pair(split))
limit(memory)
files = {split: str(folder / f"{split}.npy") for split in ("train", "valid", "test")}
given = store_links(dataset, graph, GivenLinks.of(FileOptions(**files)), cluster)
assert given.artifact.facts["edges"]["train/pair"] == links.num_pairs["train"]
peak = max(each.artifact.measured["peak_memory"] for each in (links, given, dataset.graph(links.message_graph)))
print(json.dumps([peak, links.artifact.facts["held_out_entries"]]))
"""


def _capped(memory: int, scale: int, folder: Path) -> int:
    """Draw and store the links of an R-MAT graph in a process with a memory limit; returns its peak."""
    ingest_graph(Catalog(folder).create("g"), RmatEdges(scale, 16), IngestOptions(True), InProcessCluster(1 << 30))
    command = [sys.executable, "-c", _CAPPED, str(memory), str(folder)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    peak, held_out = json.loads(result.stdout)
    assert held_out > 0
    return int(peak)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scale", [pytest.param(12, marks=pytest.mark.long), 16, pytest.param(17, marks=pytest.mark.long)]
)
def test_memory_stays_within_a_cap_on_the_process(tmp_path: Path, scale: int) -> None:
    assert _capped(448 * MIB, scale, tmp_path) <= 448 * MIB


@pytest.mark.long
@pytest.mark.parametrize("memory", [448 * MIB, 1 << 30])
def test_memory_stays_within_a_cap_on_the_process_at_any_size(tmp_path: Path, memory: int) -> None:
    # The system reclaims pages of mapped files, here of the pairs and of the copies of the graph, when memory is short.
    peak = _capped(memory, 20, tmp_path)
    mapped = tree_bytes(tmp_path / "g" / MAPPED) + sum(path.stat().st_size for path in tmp_path.glob("*.npy"))
    assert peak - mapped <= memory
