"""Links are drawn and looked up within the memory of a worker, whatever the skew of the graph."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph
from gnnloom.pipeline.ingest.typed.table import parse_relations
from gnnloom.pipeline.ingest.typed.tables import TypedTables
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


#: Draws links of a relation with a limit, at random and by time; prints the peak.
_CAPPED_RELATION = """
import resource, sys
from pathlib import Path
memory, folder = int(sys.argv[1]), Path(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (memory, resource.RLIM_INFINITY))
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.relation.stage import draw_relation_links
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
dataset, peaks = Catalog(folder)["g"], []
(ingested,) = dataset.ingested_graphs()
relation = dataset.typed_graph(ingested.key).relation("pays")
for options in ({"disjoint": 0.5, "negatives": 3}, {"by": "time"}):
    links = draw_relation_links(dataset, relation, DrawOptions(relation="pays", **options), InProcessCluster(memory))
    message = dataset.typed_graph(links.message_graph)
    peaks += [each.artifact.measured["peak_memory"] for each in (links, message)]
print(max(peaks))
"""


@pytest.mark.slow
def test_memory_of_a_relation_stays_within_a_cap_on_the_process(tmp_path: Path) -> None:
    """Half of all payments go to one shop, and a quarter of them from one user to it."""
    rng, count = np.random.default_rng(3), 2_000_000
    user, shop = rng.integers(0, 300_000, count), rng.integers(0, 5_000, count)
    shop[: count // 2], user[: count // 4] = 7, 11
    names = {"user": user, "shop": shop, "time": rng.integers(0, 1 << 30, count)}
    pyarrow.parquet.write_table(pa.table(names), tmp_path / "pays.parquet")
    relation = parse_relations([f"user,pays,shop={tmp_path / 'pays.parquet'}:user,shop,time as time,time as feature"])
    how = IngestOptions(merge="keep"), TypedOptions(), InProcessCluster(1 << 30)
    ingest_typed_graph(Catalog(tmp_path).create("g"), TypedTables.open(relation, {}, {}), *how)
    command = [sys.executable, "-c", _CAPPED_RELATION, str(448 * MIB), str(tmp_path)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) <= 448 * MIB
