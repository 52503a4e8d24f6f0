"""An ingest that was killed at any moment and started again leaves the bytes of one that was never interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from support.edge_files import EdgeFiles, write_edges
from support.lanes import flip_bit
from support.stopping import StoppedError, StoppingCluster

_INGEST = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.storage import Catalog
from support.edge_files import EdgeFiles
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    source = EdgeFiles(folder / "edges", range_edges=30_000)
    with open_cluster(ClusterOptions(workers=2)) as cluster:
        ingest_graph(Catalog(folder).create("killed"), source, IngestOptions(undirected=True), cluster)
"""


def _start(folder: Path) -> subprocess.Popen[bytes]:
    script = folder / "ingest.py"
    script.write_text(_INGEST)
    return subprocess.Popen([sys.executable, str(script), str(folder), str(Path(__file__).parents[2])])


def _records(folder: Path) -> dict[str, int]:
    """When each task was recorded, in nanoseconds."""
    found = {}
    for path in folder.glob("killed/graph/*/.work/records/[!.]*.json"):
        try:
            found[path.name] = path.stat().st_mtime_ns
        except FileNotFoundError:
            continue
    return found


def _kill_after(process: subprocess.Popen[bytes], folder: Path, tasks: int) -> bool:
    """Kill the process (its workers live on for a moment) once so many tasks are recorded; whether it had not ended."""
    deadline = time.monotonic() + 60
    while len(_records(folder)) < tasks and process.poll() is None and time.monotonic() < deadline:
        # Often enough to kill between two tasks, and seldom enough to leave the processors to the workers.
        time.sleep(0.01)
    process.kill()
    return process.wait() != 0


@pytest.mark.slow
@pytest.mark.parametrize("kills", [(12,), pytest.param((5, 20, 22), marks=pytest.mark.long)])
def test_resume_after_kill_gives_the_same_bytes(tmp_path: Path, kills: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    u, v = rng.integers(0, 12_000_000, (2, 600_000))
    source = write_edges(tmp_path / "edges", u, v, range_edges=600_000)
    options = IngestOptions(undirected=True)
    never_killed = ingest_graph(Catalog(tmp_path).create("whole"), source, options, InProcessCluster())
    earlier: dict[str, int] = {}
    # 20 ranges are scattered; then come 3 blocks and the arrays of the vertices.
    for tasks in kills:
        # The last of them may have come to its end before it could be killed.
        if not _kill_after(_start(tmp_path), tmp_path, tasks):
            assert tasks == 22
            break
        records = _records(tmp_path)
        for name, recorded_at in earlier.items():
            assert records[name] == recorded_at, f"{name} was made again"
        earlier = records
    if len(kills) > 1:
        assert _start(tmp_path).wait(timeout=120) == 0
    else:
        # What workers left is finished here, which saves starting others.
        ranges = EdgeFiles(tmp_path / "edges", range_edges=30_000)
        ingest_graph(Catalog(tmp_path)["killed"], ranges, options, InProcessCluster())
    (finished,) = _graphs(tmp_path)
    assert finished.artifact.digest == never_killed.artifact.digest
    assert finished.artifact.facts == never_killed.artifact.facts
    finished.artifact.verify()
    assert not (finished.artifact.path / ".work").exists()


def _graphs(folder: Path) -> list[Graph]:
    infos = Catalog(folder)["killed"].artifacts("graph")
    return [Graph(Artifact(info.path)) for info in infos]


#: Several row blocks of few entries.
BLOCKS = Scratch(block_entries=20_000)
HERE = InProcessCluster(scratch=BLOCKS)


@pytest.fixture
def edges(tmp_path: Path) -> EdgeFiles:
    u, v = np.random.default_rng(7).integers(0, 40_000, (2, 30_000))
    return write_edges(tmp_path / "edges", u, v, range_edges=9000)


def _stopped(catalog: Catalog, edges: EdgeFiles, tasks: int, scratch: Scratch = BLOCKS) -> Path:
    """Stop after some tasks; returns the work folder."""
    with pytest.raises(StoppedError):
        ingest_graph(catalog.create("g"), edges, IngestOptions(), StoppingCluster(tasks, scratch))
    (info,) = catalog["g"].artifacts("graph")
    assert info.state == "incomplete"
    return info.path / ".work"


@pytest.mark.parametrize("tasks", [3, 5])
@pytest.mark.parametrize("damage", ["missing", "short"])
def test_lost_spill_files_are_made_again(catalog: Catalog, edges: EdgeFiles, tasks: int, damage: str) -> None:
    """There are 4 ranges and some blocks; the second run finds one spill file of the first run missing or cut."""
    expected = ingest_graph(catalog.create("whole"), edges, IngestOptions(), HERE)
    work = _stopped(catalog, edges, tasks)
    first = min((work / "shuffle").glob("spill/*/*/lanes-*-00"))
    if damage == "missing":
        first.unlink()
    else:
        os.truncate(first, first.stat().st_size - 8)
    cluster = StoppingCluster(scratch=BLOCKS)
    found = ingest_graph(catalog["g"], edges, IngestOptions(), cluster)
    assert found.artifact.digest == expected.artifact.digest
    assert next(name for function, name in cluster.ran if function == "scatter_range").startswith("scatter/00000-")
    assert ("make_block", "block/00000") in cluster.ran or tasks == 5


@pytest.mark.parametrize(
    ("tasks", "fan_in"),
    [
        pytest.param(3, 512, id="while ranges are scattered"),
        pytest.param(5, 512, id="while blocks are sorted"),
        pytest.param(6, 2, id="while spill files are merged"),
        pytest.param(9, 2, id="while blocks are sorted from merged files"),
    ],
)
def test_a_flipped_bit_in_every_spill_file_changes_no_byte(
    catalog: Catalog, edges: EdgeFiles, tasks: int, fan_in: int
) -> None:
    scratch = replace(BLOCKS, spill_files=fan_in)
    expected = ingest_graph(catalog.create("whole"), edges, IngestOptions(), HERE)
    work = _stopped(catalog, edges, tasks, scratch)
    flipped = [flip_bit(path) for path in work.glob("shuffle/spill/*/*/lanes-*") if path.stat().st_size]
    # Folders of merged files are named after several spans.
    assert any(not path.parent.name.endswith("x1") for path in flipped) == (fan_in == 2)
    found = ingest_graph(catalog["g"], edges, IngestOptions(), InProcessCluster(scratch=scratch))
    assert found.artifact.digest == expected.artifact.digest
    found.artifact.verify()


def test_flipped_bits_in_records_and_plans_change_no_byte(catalog: Catalog, edges: EdgeFiles) -> None:
    expected = ingest_graph(catalog.create("whole"), edges, IngestOptions(), HERE)
    work = _stopped(catalog, edges, 5)
    flipped = [flip_bit(path) for path in work.rglob("*.json")]
    assert {"plan.json", "sort.json"} < {path.name for path in flipped}
    assert any(path.name.startswith("scatter-00003-") for path in flipped)
    found = ingest_graph(catalog["g"], edges, IngestOptions(), HERE)
    assert found.artifact.digest == expected.artifact.digest
    found.artifact.verify()


@pytest.mark.parametrize("exchanged", ["sort.json", "records/scatter-00002-*.json"])
def test_a_record_that_is_exchanged_changes_no_byte(catalog: Catalog, edges: EdgeFiles, exchanged: str) -> None:
    expected = ingest_graph(catalog.create("whole"), edges, IngestOptions(), HERE)
    work = _stopped(catalog, edges, 5)
    (other,), (record,) = work.glob(exchanged), work.glob("records/scatter-00001-*.json")
    first, second = other.read_bytes(), record.read_bytes()
    other.write_bytes(second)
    record.write_bytes(first)
    found = ingest_graph(catalog["g"], edges, IngestOptions(), HERE)
    assert found.artifact.digest == expected.artifact.digest


@pytest.mark.parametrize("range_edges", [4000, 9500])
def test_ranges_that_are_cut_differently_are_scattered_again(
    catalog: Catalog, edges: EdgeFiles, range_edges: int
) -> None:
    """With more ranges, and with as many; records of merges are about the same files only."""
    scratch = replace(BLOCKS, spill_files=2)
    work = _stopped(catalog, edges, 7, scratch)
    assert list(work.glob("records/merge-*"))
    for path in work.glob("shuffle/spill/*/*/lanes-*"):
        path.unlink()
    other = EdgeFiles(edges.folder, range_edges=range_edges)
    expected = ingest_graph(catalog.create("whole"), edges, IngestOptions(), HERE)
    found = ingest_graph(catalog["g"], other, IngestOptions(), InProcessCluster(scratch=scratch))
    assert found.artifact.digest == expected.artifact.digest


def test_a_block_that_was_published_but_not_recorded_is_made_again(catalog: Catalog, edges: EdgeFiles) -> None:
    expected = ingest_graph(catalog.create("whole"), edges, IngestOptions(), HERE)
    work = _stopped(catalog, edges, 5)
    made = sorted(work.glob("records/block-*.json"))
    number = made[0].stem.removeprefix("block-")
    made[0].unlink()
    chunk = next((work.parent / "block" / number / "indices" / "c").iterdir())
    chunk.write_bytes(b"damaged")
    found = ingest_graph(catalog["g"], edges, IngestOptions(), HERE)
    assert found.artifact.digest == expected.artifact.digest
    found.artifact.verify()


def test_spill_files_are_gone_before_the_commit(
    catalog: Catalog, edges: EdgeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a run was killed while committing, the next one needs no spill files: every block is recorded."""

    def killed(*_: object, **__: object) -> None:
        raise StoppedError

    dataset = catalog.create("g")
    with monkeypatch.context() as patch:
        patch.setattr(ArtifactWriter, "commit", killed)
        with pytest.raises(StoppedError):
            ingest_graph(dataset, edges, IngestOptions(), HERE)
    assert not list(catalog["g"].path.glob("graph/*/.work/shuffle/spill/*/*/lanes-*"))
    cluster = StoppingCluster(scratch=BLOCKS)
    ingest_graph(catalog["g"], edges, IngestOptions(), cluster)
    assert cluster.ran == []


@pytest.mark.parametrize("tasks", [10, 11])
def test_ids_collected_in_more_ranges_than_the_source_has_now_are_not_used(
    catalog: Catalog, edges: EdgeFiles, tasks: int
) -> None:
    """The first run collects the ids of 10 ranges, and merges them in the second case."""
    options = IngestOptions(ids="compact")
    expected = ingest_graph(catalog.create("whole"), edges, options, HERE)
    first = StoppingCluster(tasks, BLOCKS)
    with pytest.raises(StoppedError):
        ingest_graph(catalog.create("g"), EdgeFiles(edges.folder, range_edges=3000), options, first)
    assert sum(function == "collect_range" for function, _ in first.ran) == 10
    found = ingest_graph(catalog["g"], edges, options, HERE)
    assert found.num_vertices == expected.num_vertices
    assert found.artifact.digest == expected.artifact.digest
