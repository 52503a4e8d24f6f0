"""Tasks that number ids and names open the few files that the tasks before them wrote, and lost ones are noticed."""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.external_sort.lanes import LaneSet, OpenFiles, writable
from gnnloom.pipeline.ingest.keys import blocks
from gnnloom.pipeline.ingest.keys.key_types import KEY_TYPES
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph, project_ingest
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from support.covering import examples, few_of
from support.edge_files import write_edges
from support.lanes import flip_bit
from support.opened_files import hearing_of_files
from support.stopping import StoppedError, StoppingCluster

OPTIONS = IngestOptions(self_loops="keep", ids="compact")
RANGES = 40


class OpenLister(InProcessCluster):
    """Lists every temporary file that a task opens, as often as it does, with the name of the task's function."""

    def __init__(self, scratch: Scratch) -> None:
        super().__init__(scratch=scratch)
        self.opened: list[tuple[str, list[str]]] = []
        self._open: list[str] = []

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            self._open = []
            with hearing_of_files(self._note):
                yield function(item)
            self.opened.append((function.__name__, self._open))

    def _note(self, path: Any, mode: Any, _: Any) -> None:
        # A lane that is sealed is opened once more, by a function of Python's that passes a mode.
        if isinstance(path, str) and mode is None and ("/.work/keys/" in path or "/.work/shuffle/" in path):
            self._open.append(path)


#: Ranges of some dozen keys, and several files of each range of a source.
SMALL_RANGES = {
    "numbers": Scratch(range_bytes=3200, slice_bytes=1, merged_bytes=2 * 40 * 250, gathered_bytes=104 * 100),
    "names": Scratch(range_bytes=600, slice_bytes=1, merged_bytes=2 * 4000, gathered_bytes=2500),
}


def number_edges(folder: Path, ranges: int = RANGES) -> Any:
    """Edges between numbers: ranges of the source with three files each, and many ranges of ids."""
    rng = np.random.default_rng(3)
    u, v = rng.choice(rng.integers(0, 1 << 62, ranges * 225), (2, ranges * 250))
    return write_edges(folder / "numbers", u, v, rng.random(len(u)), range_edges=250)


def name_edges(folder: Path, ranges: int = RANGES) -> Any:
    """The same with names."""
    ends = np.random.default_rng(4).integers(0, ranges * 30, (ranges * 25, 2)).tolist()
    lines = [f"v{a:05d} w{b:05d} {number}\n" for number, (a, b) in enumerate(ends)]
    (folder / "names.txt").write_text("".join(lines))
    range_bytes = -(-sum(map(len, lines)) // ranges)
    source = open_edges(None, [str(folder / "names.txt")], {"weights": True})
    return replace(cast("Any", source), range_bytes=range_bytes, block_bytes=range_bytes // 4)


KINDS = {"numbers": number_edges, "names": name_edges}
#: Prefixes of the files that tasks share.
LANES = ("keys/collected", "keys/merged", "shuffle/numbers/**/lanes")


#: Sizes for fewer ranges, whose tasks share files by four: a tenth of the work, and as many kinds of files.
BY_FOUR = {name: replace(scratch, files=4, sources=4) for name, scratch in SMALL_RANGES.items()}


def few_edges(kind: str, folder: Path) -> Any:
    """Edges in fewer ranges."""
    return KINDS[kind](folder, 10)


@functools.cache
def opened_files(kind: str) -> list[tuple[str, list[str]]]:
    """The function of every task of an ingest, and the temporary files that it opens."""
    cluster = OpenLister(SMALL_RANGES[kind])
    with tempfile.TemporaryDirectory() as folder:
        ingest_graph(Catalog(folder).create("g"), KINDS[kind](Path(folder)), OPTIONS, cluster)
    return cluster.opened


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_task_opens_more_than_16_files_of_ids_or_one_of_them_twice(kind: str) -> None:
    for function, opened in opened_files(kind):
        assert len(set(opened)) == len(opened), (function, opened)
    functions = ("collect_range", "merge_range", "scatter_range")
    found = {each: [len(opened) for name, opened in opened_files(kind) if name == each] for each in functions}
    # The last of the ranges of text may be empty.
    assert len(found["collect_range"]) >= RANGES - 1
    assert max(found["collect_range"]) == 1
    assert len(found["merge_range"]) > 2 * BESIDE.files
    # It writes keys and numbers.
    assert set(found["merge_range"]) == {BESIDE.files + 2}
    # It reads the numbers of its files.
    assert 8 < max(found["scatter_range"]) <= 1 + BESIDE.files


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_merged_ranges_are_read_from_16_files(kind: str) -> None:
    opened = [files for function, files in opened_files(kind) if function == "write_key_array"]
    # One task reads all ranges.
    assert {len(files) for files in opened} == {BESIDE.files}


@functools.cache
def undisturbed(kind: str) -> tuple[str, list[str]]:
    """The digest of the graph, and the functions of all tasks in the order in which they ran."""
    cluster = StoppingCluster(scratch=BY_FOUR[kind])
    with tempfile.TemporaryDirectory() as folder:
        source = few_edges(kind, Path(folder))
        digest = ingest_graph(Catalog(folder).create("whole"), source, OPTIONS, cluster).artifact.digest
    return digest, [function for function, _ in cluster.ran]


def stop_after(catalog: Catalog, source: Any, kind: str, tasks: int) -> Path:
    """Stop after so many tasks in one command; returns the work folder."""
    with pytest.raises(StoppedError):
        ingest_graph(catalog.create("g"), source, OPTIONS, StoppingCluster(tasks, BY_FOUR[kind]))
    (info,) = catalog["g"].artifacts("graph")
    return info.path / ".work"


MERGING, SCATTERING = ("missing", "while ids are merged"), ("short", "while edges are scattered")
#: Every kind of shared file, and a file of each kind of source for both damages.
CASES = [("numbers", LANES[0], MERGING), ("numbers", LANES[1], SCATTERING), ("names", LANES[2], SCATTERING)]
LONG_CASES = [case for case in itertools.product(KINDS, LANES, (MERGING, SCATTERING)) if case not in CASES]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "lost", "damaged"), [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG_CASES)]
)
def test_a_lost_shared_file_is_noticed_and_its_tasks_run_again(
    catalog: Catalog, tmp_path: Path, kind: str, lost: str, damaged: tuple[str, str]
) -> None:
    damage, when = damaged
    source = few_edges(kind, tmp_path)
    expected, functions = undisturbed(kind)
    collect, merge = "collect_range", "merge_range"
    begun = functions.index(merge if when == "while ids are merged" else "scatter_range")
    work = stop_after(catalog, source, kind, begun + 2)
    lane_file = min(path for path in work.glob(f"{lost}-*-00") if path.stat().st_size)
    if damage == "missing":
        lane_file.unlink()
    else:
        os.truncate(lane_file, lane_file.stat().st_size - 1)
    cluster = StoppingCluster(scratch=BY_FOUR[kind])
    found = ingest_graph(catalog["g"], source, OPTIONS, cluster)
    assert found.artifact.digest == expected
    found.artifact.verify()
    again = [sum(name == function for name, _ in cluster.ran) for function in (collect, merge)]
    merges = functions.count(merge)
    if lost.endswith("collected"):
        # All ranges of ids have numbers to write into the new lanes.
        assert 1 <= again[0] <= -(-functions.count(collect) // 4)
        assert again[1] == merges
    elif lost.startswith("shuffle") and when != "while ids are merged":
        # What was routed is gone once it is merged.
        assert again == [0, merges]
    else:
        merged = 2 if when == "while ids are merged" else merges
        assert again[0] == 0
        assert merges - merged + 1 <= again[1] <= merges - merged + -(-merged // 4)


@pytest.mark.parametrize(("damaged", "kind"), few_of(LANES, KINDS, together=1))
def test_a_flipped_bit_in_any_lane_leaves_the_right_bytes(
    catalog: Catalog, tmp_path: Path, kind: str, damaged: str
) -> None:
    source = few_edges(kind, tmp_path)
    expected, functions = undisturbed(kind)
    begun = functions.index("merge_range" if damaged == "keys/collected" else "scatter_range")
    work = stop_after(catalog, source, kind, begun + 2)
    lane_file = min(path for path in work.glob(f"{damaged}-*-00") if path.stat().st_size)
    # The data of the first lane follow its seal.
    flip_bit(lane_file, 17)
    found = ingest_graph(catalog["g"], source, OPTIONS, InProcessCluster(scratch=BY_FOUR[kind]))
    assert found.artifact.digest == expected
    found.artifact.verify()
    assert not lane_file.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bits_in_records_ranges_and_tables_leave_the_right_bytes(
    catalog: Catalog, tmp_path: Path, kind: str
) -> None:
    source = few_edges(kind, tmp_path)
    expected, functions = undisturbed(kind)
    work = stop_after(catalog, source, kind, functions.index("scatter_range") + 1)
    # Both files in the folder of the keys, and the first record of each kind of task.
    records = {path.name.split("-")[0]: path for path in sorted((work / "records").glob("*.json"), reverse=True)}
    flipped = [flip_bit(path) for path in (*(work / "keys").glob("*.json"), *records.values())]
    assert {"collect", "merge", "scatter"} <= records.keys()
    assert len(flipped) == 2 + len(records)
    assert (
        ingest_graph(catalog["g"], source, OPTIONS, InProcessCluster(scratch=BY_FOUR[kind])).artifact.digest == expected
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_source_is_read_once(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Edges are on disk with their keys, so that a source that is gone or changes later does no harm."""
    source = few_edges(kind, tmp_path)
    expected, functions = undisturbed(kind)
    calibrated = project_ingest(source, OPTIONS, tmp_path, 1, DEFAULT_MEMORY)
    stop_after(catalog, source, kind, functions.index("merge_range"))
    with monkeypatch.context() as patch:
        decided = replace(OPTIONS, ids="names") if kind == "names" else OPTIONS
        patch.setattr("gnnloom.pipeline.ingest.stage._project", lambda *_: (decided, calibrated))
        for read in ("read", "read_names"):
            patch.setattr(type(source), read, None, raising=False)
        assert (
            ingest_graph(catalog["g"], source, OPTIONS, InProcessCluster(scratch=BY_FOUR[kind])).artifact.digest
            == expected
        )


@given(st.lists(st.text("ab", min_size=1, max_size=4) | st.integers(0, 1 << 62), min_size=1, max_size=40), st.data())
@settings(max_examples=examples(30), deadline=None)
def test_keys_are_searched_by_reading(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    for ids, kind in (("compact", int), ("names", str)):
        chosen = [value for value in values if isinstance(value, kind)] or [kind(7)]
        given_keys = np.array(chosen, np.int64) if ids == "compact" else Names.of_values(np.array(chosen))
        keys, positions = KEY_TYPES[ids].distinct([given_keys])
        distinct = sorted({value.encode() if isinstance(value, str) else value for value in chosen})
        assert [KEY_TYPES[ids].key(keys, number) for number in range(len(keys))] == distinct
        assert [distinct[place] for place in positions] == [v.encode() if isinstance(v, str) else v for v in chosen]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(blocks, "_SEARCHED_KEYS", 3)
            lane = LaneSet.create(folder, ids, 33, Scratch(page_bytes=24)).lane(32)
            with writable(folder, lane) as opened:
                block = blocks.KeyBlock.write(opened, lane, 5, KEY_TYPES[ids].arrays(keys))
            with OpenFiles(folder) as files:
                found = blocks.OpenBlock(block, KEY_TYPES[ids], files)
                for rank, key in enumerate(distinct):
                    low, high = data.draw(st.integers(0, rank)), data.draw(st.integers(rank + 1, len(distinct)))
                    assert found.position(key, low, high) == rank
                    later = key + 1 if isinstance(key, int) else key + b"\0"
                    assert found.position(later, low, high) == rank + 1
