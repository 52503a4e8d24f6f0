"""Tasks that renumber ids and names open the few files that the tasks before them wrote, and lost ones are noticed."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.external_sort import lanes
from gnnloom.pipeline.external_sort.lanes import MOST_FILES, LaneSet, OpenFiles, writable
from gnnloom.pipeline.ingest import id_files
from gnnloom.pipeline.ingest.id_files import IdFile, OpenIds
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.sources.formats import open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.format.files import read_json, write_json
from support.edge_files import write_edges
from support.stopping import StoppedError, StoppingCluster

OPTIONS = IngestOptions(self_loops="keep", ids="compact")
RANGES = 40


class OpenLister(InProcessCluster):
    """Lists every temporary file that a task opens, as often as it does, with the name of the task's function."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[tuple[str, list[str]]] = []
        self._open: list[str] | None = None
        # A hook cannot be removed, so it looks whether a task runs.
        sys.addaudithook(self._note)

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            self._open = []
            yield function(item)
            self.opened.append((function.__name__, self._open))
            self._open = None

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or self._open is None or not isinstance(arguments[0], str):
            return
        path = arguments[0]
        if ("/.work/ids/" in path or "/.work/names/" in path) and not path.endswith(".json"):
            self._open.append(path)


def number_edges(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """Edges between numbers: ranges of the source with three files each, and many ranges of ids."""
    patch.setattr("gnnloom.pipeline.ingest.compact_ids.RANGE_IDS", 400)
    patch.setattr("gnnloom.pipeline.ingest.compact_ids.FILE_RANGE_IDS", 1)
    patch.setattr("gnnloom.pipeline.ingest.compact_ids.working_memory", lambda _: 4 * 40 * 2 * 100)
    rng = np.random.default_rng(3)
    u, v = rng.choice(rng.integers(0, 1 << 62, 9000), (2, RANGES * 250))
    return write_edges(folder / "numbers", u, v, rng.random(len(u)), range_edges=250)


def name_edges(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """The same with names."""
    patch.setattr("gnnloom.pipeline.ingest.names.collect.working_memory", lambda _: 16 * 800)
    patch.setattr("gnnloom.pipeline.ingest.names.merge.working_memory", lambda _: 2 * 20_000)
    patch.setattr("gnnloom.pipeline.ingest.names.merge.RANGE_BYTES", 600)
    patch.setattr("gnnloom.pipeline.ingest.names.merge.FILE_RANGE_BYTES", 1)
    ends = np.random.default_rng(4).integers(0, 1200, (RANGES * 25, 2)).tolist()
    lines = [f"v{a:05d} w{b:05d} {number}\n" for number, (a, b) in enumerate(ends)]
    (folder / "names.txt").write_text("".join(lines))
    range_bytes = -(-sum(map(len, lines)) // RANGES)
    source = open_edges(None, [str(folder / "names.txt")], {"weights": True})
    return replace(cast("Any", source), range_bytes=range_bytes, block_bytes=range_bytes // 4)


KINDS = {"numbers": number_edges, "names": name_edges}
#: Functions of the tasks that collect and merge.
TASKS = {"numbers": ("collect_ids", "merge_ids"), "names": ("collect_range", "merge_range")}


@pytest.mark.parametrize("kind", KINDS)
def test_no_task_opens_more_than_16_files_of_ids_or_one_of_them_twice(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    source, cluster = KINDS[kind](tmp_path, monkeypatch), OpenLister()
    ingest_graph(catalog.create("g"), source, OPTIONS, cluster)
    for function, opened in cluster.opened:
        # A range of ids that exceeds the memory is split into a file of its own.
        shared = [path for path in opened if "split-" not in path]
        assert len(set(shared)) == len(shared), (function, opened)
    collect, merge = TASKS[kind]
    found = {each: [len(opened) for name, opened in cluster.opened if name == each] for each in (collect, merge)}
    # The last of the ranges of text may be empty.
    assert len(found[collect]) >= RANGES - 1
    assert max(found[collect]) == 1
    assert len(found[merge]) > 2 * MOST_FILES
    made = 1 if kind == "numbers" else 2
    assert set(found[merge]) == {MOST_FILES + made}


def test_merged_ranges_are_read_from_16_files(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, readers in (("numbers", {"write_degrees"}), ("names", {"write_name_array"})):
        source, cluster = KINDS[kind](tmp_path, monkeypatch), OpenLister()
        ingest_graph(catalog.create(kind), source, OPTIONS, cluster)
        opened = [files for function, files in cluster.opened if function in readers]
        # One task reads all ranges.
        assert {len(files) for files in opened} == {MOST_FILES}


@functools.cache
def undisturbed(kind: str) -> tuple[str, list[str]]:
    """The digest of the graph, and the functions of all tasks in the order in which they ran."""
    cluster = StoppingCluster()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        source = KINDS[kind](Path(folder), patch)
        digest = ingest_graph(Catalog(folder).create("whole"), source, OPTIONS, cluster).artifact.digest
    return digest, [function for function, _ in cluster.ran]


def stop_after(catalog: Catalog, source: Any, tasks: int) -> Path:
    """Stop after so many tasks in one command; returns the work folder."""
    with pytest.raises(StoppedError):
        ingest_graph(catalog.create("g"), source, OPTIONS, StoppingCluster(tasks))
    (info,) = catalog["g"].artifacts("graph")
    return info.path / ".work"


MERGING, SCATTERING = ("missing", "while ids are merged"), ("short", "while edges are scattered")
#: Every kind of shared file, and a file of each kind of source for both damages.
CASES = [("ids/collected", MERGING), ("ids/merged", SCATTERING), ("names/collected", MERGING)]
LONG_CASES = [("ids/collected", SCATTERING), ("ids/merged", MERGING), ("names/collected", SCATTERING)]
LONG_CASES += itertools.product(("names/ends", "names/text"), (MERGING, SCATTERING))


@pytest.mark.parametrize(
    ("lost", "damaged"), [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG_CASES)]
)
def test_a_lost_shared_file_is_noticed_and_its_tasks_run_again(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, damaged: tuple[str, str]
) -> None:
    kind, (damage, when) = "names" if lost.startswith("names") else "numbers", damaged
    source = KINDS[kind](tmp_path, monkeypatch)
    expected, functions = undisturbed(kind)
    collect, merge = TASKS[kind]
    begun = functions.index(merge if when == "while ids are merged" else "scatter_range")
    work = stop_after(catalog, source, begun + 2)
    lane_file = min(path for path in work.glob(f"{lost}-*-00") if path.stat().st_size)
    if damage == "missing":
        lane_file.unlink()
    else:
        os.truncate(lane_file, lane_file.stat().st_size - 1)
    cluster = StoppingCluster()
    found = ingest_graph(catalog["g"], source, OPTIONS, cluster)
    assert found.artifact.digest == expected
    found.artifact.verify()
    again = [sum(name == function for name, _ in cluster.ran) for function in (collect, merge)]
    merges = functions.count(merge)
    if lost.endswith("collected"):
        # All ranges of ids have numbers to write into the new lanes.
        assert 1 <= again[0] <= -(-functions.count(collect) // MOST_FILES)
        assert again[1] == merges
    else:
        merged = 2 if when == "while ids are merged" else merges
        assert again[0] == 0
        assert merges - merged + 1 <= again[1] <= merges - merged + -(-merged // MOST_FILES)


@pytest.mark.parametrize("kind", KINDS)
def test_records_and_plans_of_earlier_versions_are_not_used(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """They had a file for each file of ids, and described it by its path."""
    source = KINDS[kind](tmp_path, monkeypatch)
    expected, functions = undisturbed(kind)
    collect, merge = TASKS[kind]
    work = stop_after(catalog, source, functions.index("scatter_range"))
    folder, files = (
        ("ids", [["ids/00000-0123", 5, 5]]) if kind == "numbers" else ("names", [{"path": "names/00000-01"}])
    )
    key = "files" if kind == "numbers" else "runs"
    for path in work.glob("records/[!.]*.json"):
        record = read_json(path)
        if key in record["facts"] and "lane" in record["facts"]:
            del record["facts"]["lane"]
            write_json(path, {**record, "facts": {**record["facts"], key: files}})
    write_json(work / folder / "plan.json", {key: files, "bounds": []})
    write_json(work / folder / "table.json", {"paths": [f"{folder}/merged-01"], "first_number": [0, 5], "bounds": []})
    cluster = StoppingCluster()
    assert ingest_graph(catalog["g"], source, OPTIONS, cluster).artifact.digest == expected
    for function in (collect, merge):
        assert [name for name, _ in cluster.ran].count(function) == functions.count(function)


@given(st.integers(1, 40), st.data())
@settings(max_examples=20, deadline=None)
def test_ids_are_searched_by_reading(
    tmp_path_factory: pytest.TempPathFactory, num_ids: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    ids = np.sort(np.random.default_rng(num_ids).choice(1 << 62, num_ids, replace=False).astype(np.uint64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_files, "BLOCK_IDS", 3)
        patch.setattr(lanes, "PAGE_BYTES", 12)
        file = IdFile(LaneSet.create(folder, "ids", 33).lane(32), 5, num_ids, 1)
        with writable(folder, file.lane) as lane:
            lane.write(file.ids_at, ids)
        with OpenFiles(folder, writable=True) as opened:
            found = OpenIds(file, opened)
            for key in [*ids.tolist(), *(ids + np.uint64(1)).tolist(), 0, 1 << 63]:
                rank = int(np.searchsorted(ids, np.uint64(key)))
                first = data.draw(st.integers(0, rank))
                assert found.rank(key, first, data.draw(st.integers(rank, num_ids))) == rank
            # Numbers have a place of their own.
            found.write_numbers(0, np.arange(num_ids))
            np.testing.assert_array_equal(found.read(0, num_ids), ids)
