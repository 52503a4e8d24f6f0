"""Mapped copies equal what is stored, are made once, and are found, verified and removed like everything else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog, Dataset, Graph
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.mapped_links import map_links
from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.part_members import map_part_members
from gnnloom.storage.artifacts.whole_graph import map_whole_graph, read_whole_graph
from gnnloom.storage.checks.copy_invariants import check_copy
from gnnloom.storage.disk import copy_checksums, mapped_rows
from gnnloom.storage.disk.files import read_json, sync_tree, write_json
from gnnloom.storage.errors import BudgetError, CorruptError, InputError
from gnnloom.storage.format import mapped_copy
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.upkeep.garbage import Garbage, collect_garbage, find_garbage
from support.graphs import random_adjacency, store_graph, store_vertices
from support.links import store_links
from support.resealing import seal_copy
from support.small_catalogs import store_small_dataset
from support.warnings_logged import warnings_logged

KINDS = [(symmetric, weighted) for symmetric in (False, True) for weighted in (False, True)]


def stored(catalog: Catalog, *, symmetric: bool = True, weighted: bool = False, n: int = 300) -> tuple[Graph, Any]:
    adjacency = random_adjacency(n, 5 * n, 0, symmetric=symmetric, loops=False)
    adjacency.data[:] = np.random.default_rng(0).random(adjacency.nnz)
    return store_graph(catalog.create("g"), adjacency, symmetric=symmetric, weighted=weighted), adjacency


def copy_of(graph: Graph) -> Path:
    return mapped_copy.copy_path(graph.artifact)


def is_garbage(dataset: Dataset, path: Path) -> bool:
    return path in [item.path for item in find_garbage(dataset)]


@pytest.mark.parametrize(("symmetric", "weighted"), KINDS)
def test_the_whole_graph_equals_what_is_stored(catalog: Catalog, symmetric: bool, weighted: bool) -> None:
    graph, adjacency = stored(catalog, symmetric=symmetric, weighted=weighted)
    for whole in (map_whole_graph(graph), read_whole_graph(graph)):
        matrix = whole.matrix
        np.testing.assert_array_equal(matrix.indptr, adjacency.indptr)
        np.testing.assert_array_equal(matrix.indices, adjacency.indices)
        np.testing.assert_array_equal(whole.loop, adjacency.diagonal() != 0)
        assert (matrix.data is not None) == weighted
        if matrix.data is not None:
            np.testing.assert_array_equal(matrix.data, adjacency.data.astype(np.float32))
        assert not any(array.flags.writeable for array in (matrix.indptr, matrix.indices, whole.loop))
    assert read_whole_graph(graph, pattern=True).matrix.data is None


@pytest.mark.parametrize("n", [0, 1, 5])
def test_tiny_graphs_are_mapped(catalog: Catalog, n: int) -> None:
    graph, adjacency = stored(catalog, n=n)
    assert map_whole_graph(graph).num_vertices == n
    assert read_whole_graph(graph).matrix.nnz == adjacency.nnz


@pytest.mark.slow
def test_a_copy_is_made_once_by_whoever_comes_first(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, adjacency = stored(catalog)
    made = []
    write = mapped_copy._write_copy

    def write_and_count(path: Path, contents: Any) -> None:
        made.append(path)
        write(path, contents)

    monkeypatch.setattr(mapped_copy, "_write_copy", write_and_count)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(map_whole_graph, [graph] * 6))
    assert len(made) == 1
    assert all((whole.matrix.indices == adjacency.indices).all() for whole in found)
    # Every process maps the same file: one copy in the memory of the node.
    program = (
        "import sys, os; from gnnloom.storage import Catalog; "
        "from gnnloom.storage.artifacts.whole_graph import map_whole_graph; "
        f"whole = map_whole_graph(Catalog({str(catalog.root)!r})['g'].graph()); "
        "print(''.join(line for line in open('/proc/self/maps') if 'indices.npy' in line))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    inode = str((copy_of(graph) / "indices.npy").stat().st_ino)
    assert inode in run.stdout.split()
    assert inode in Path("/proc/self/maps").read_text().split()
    assert len(made) == 1


def test_garbage_collection_leaves_copies_that_are_used(catalog: Catalog) -> None:
    graph, _ = stored(catalog)
    whole = map_whole_graph(graph)
    row = whole.matrix.indices[5:10]
    expected = row.tolist()
    del whole
    # One view of one array is enough to keep the copy.
    assert not is_garbage(catalog["g"], copy_of(graph))
    collect_garbage(catalog["g"])
    assert copy_of(graph).is_dir()
    assert row.tolist() == expected
    del row
    assert is_garbage(catalog["g"], copy_of(graph))
    collect_garbage(catalog["g"])
    assert not copy_of(graph).exists()
    assert find_garbage(catalog["g"]) == []
    assert map_whole_graph(graph).matrix.indices[5:10].tolist() == expected


def test_an_artifact_is_removed_with_its_copy_unless_it_is_used(catalog: Catalog) -> None:
    for is_used in (True, False):
        graph, _ = stored(catalog)
        whole = map_whole_graph(graph) if is_used else None
        map_whole_graph(graph)
        catalog["g"].remove_artifact("graph", graph.artifact.key)
        assert copy_of(graph).is_dir() == is_used
        # A copy that stays is no damage: the artifact may be made again, with the same bytes.
        states = [finding.state for finding in catalog["g"].verify() if finding.problem]
        assert states == ["incomplete"] * is_used
        del whole
        catalog.remove("g")


def test_a_copy_that_was_begun_is_garbage_and_is_not_used(catalog: Catalog) -> None:
    graph, _ = stored(catalog)
    path = copy_of(graph)
    begun = path.with_name(f".{path.name}.{'0' * 32}")
    begun.mkdir(parents=True)
    (begun / "indptr.npy").write_bytes(b"x" * 100)
    assert map_whole_graph(graph).num_vertices == 300
    assert is_garbage(catalog["g"], begun)
    collect_garbage(catalog["g"])
    assert not begun.exists()


def test_a_copy_that_lacks_an_array_is_made_again(catalog: Catalog) -> None:
    graph, adjacency = stored(catalog)
    map_whole_graph(graph)
    (copy_of(graph) / "indices.npy").unlink()
    np.testing.assert_array_equal(map_whole_graph(graph).matrix.indices, adjacency.indices)
    assert [path.name for path in copy_of(graph).parent.iterdir()] == [copy_of(graph).name]


def test_failures_leave_nothing_behind(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = stored(catalog)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: _Disk(1000))
        with pytest.raises(BudgetError, match="1,000 are free"):
            map_whole_graph(graph)
    with monkeypatch.context() as patch:
        patch.setattr(mapped_copy, "sync_tree", _refuse)
        with pytest.raises(InputError, match="cannot make the uncompressed copy"):
            map_whole_graph(graph)
    assert list((catalog["g"].path / ".mapped").iterdir()) == []
    assert map_whole_graph(graph).num_vertices == 300


class _Disk:
    def __init__(self, free: int) -> None:
        self.free = free


def _refuse(path: Path) -> None:
    raise PermissionError(13, "Permission denied", str(path))


def test_a_copy_in_a_catalog_that_cannot_be_written_is_used(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, adjacency = stored(catalog)
    monkeypatch.setattr(mapped_copy, "share", _refuse)
    with pytest.raises(InputError, match="cannot make the uncompressed copy"):
        map_whole_graph(graph)
    monkeypatch.undo()
    map_whole_graph(graph)
    monkeypatch.setattr(mapped_copy, "share", _refuse)
    np.testing.assert_array_equal(map_whole_graph(graph).matrix.indices, adjacency.indices)


def flip(file: Path, place: int) -> None:
    """Flip one bit, and restore the file's time of modification, as a program may do."""
    times = file.stat()
    raw = bytearray(file.read_bytes())
    raw[place] ^= 4
    file.write_bytes(raw)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_checksums, "_BLOCK_BYTES", 1000)


@pytest.mark.parametrize("name", ["indptr", "indices", "loop", "data"])
def test_a_damaged_copy_is_made_anew_with_a_warning(catalog: Catalog, small_blocks: None, name: str) -> None:
    graph, adjacency = stored(catalog, weighted=True)
    map_whole_graph(graph)
    file = copy_of(graph) / f"{name}.npy"
    sound = file.read_bytes()
    damages: list[Callable[[], object]] = [
        *(lambda place=place: flip(file, place) for place in (6, len(sound) // 2, len(sound) - 1)),
        lambda: file.write_bytes(sound[:-1]),
        lambda: file.write_bytes(sound + b"x"),
        lambda: file.write_bytes(sound[: len(sound) // 2] + sound[len(sound) // 2 :][::-1]),
        file.unlink,
    ]
    for damage in damages:
        damage()
        with warnings_logged() as warnings:
            whole = map_whole_graph(graph)
        np.testing.assert_array_equal(whole.matrix.indices, adjacency.indices)
        assert file.read_bytes() == sound
        assert len(warnings) == 1
        assert f"{name}.npy" in warnings[0]
        assert "made again" in warnings[0]
    with warnings_logged() as warnings:
        map_whole_graph(graph)
    assert warnings == []


def change_array(file: Path, change: Callable[[Any], Any]) -> None:
    """Change the array of a copy, and make the copy's checksums right again."""
    np.save(file, change(np.load(file)))
    seal_copy(file.parent)


def with_value(place: int, value: int) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array.reshape(-1)[place] = value
        return array

    return change


#: What no kernel may use as positions, in each array of a copy: of a graph of 300 vertices in two parts, of pairs, and
#: of vertex data.
WRONG_VALUES: dict[str, list[Callable[[Any], Any]]] = {
    "indptr": [
        with_value(0, 1), with_value(0, -8), with_value(7, 10**9), with_value(-1, 10**6), with_value(-1, 3),
        lambda array: array[::-1].copy(), lambda array: array[:-1], lambda array: array.astype(np.int32),
    ],
    "indices": [with_value(5, 300), with_value(-1, -1), with_value(0, 2**31 - 1), lambda array: array[:-1]],
    "loop": [lambda array: with_value(3, 7)(array.view(np.uint8)).view(np.bool_)],
    "data": [lambda array: array.astype(np.float64), lambda array: array[:-1]],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_VALUES)
def test_a_copy_with_wrong_values_and_right_checksums_is_made_anew(
    catalog: Catalog, small_blocks: None, name: str
) -> None:
    graph, adjacency = stored(catalog, weighted=True)
    map_whole_graph(graph)
    file = copy_of(graph) / f"{name}.npy"
    sound = file.read_bytes()
    for change in WRONG_VALUES[name]:
        change_array(file, change)
        with warnings_logged() as warnings:
            whole = map_whole_graph(graph)
        np.testing.assert_array_equal(whole.matrix.indptr, adjacency.indptr)
        assert file.read_bytes() == sound
        assert len(warnings) == 1
        assert f"{name}.npy" in warnings[0]
        assert "made again" in warnings[0]


@pytest.mark.slow
def test_copies_of_parts_pairs_and_labels_are_checked_likewise(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    partition, n = dataset.partition(2), dataset.graph().num_vertices
    vertices = store_vertices(catalog.create("v"), np.ones((50, 2)), np.arange(50) % 4, np.arange(50) % 4)
    links = store_pairs(catalog.create("l"))
    wrong: list[tuple[Artifact, Callable[[], object], str, list[Callable[[Any], Any]]]] = [
        (partition.artifact, lambda: map_part_members(partition), "offset", [with_value(1, n + 1), with_value(1, -1)]),
        (partition.artifact, lambda: map_part_members(partition), "vertex", [with_value(0, n), with_value(0, -1)]),
        (partition.artifact, lambda: map_part_members(partition), "part", [with_value(0, 2)]),
        (vertices.artifact, lambda: map_vertices(vertices), "label", [with_value(9, 4), with_value(9, -2)]),
        (vertices.artifact, lambda: map_vertices(vertices), "split", [with_value(9, 4)]),
        (links.artifact, lambda: map_links(links), "valid-pair", [with_value(3, 30), with_value(3, -1)]),
        (links.artifact, lambda: map_links(links), "test-negative", [with_value(3, 30)]),
        (links.artifact, lambda: map_links(links), "train-value", [with_value(3, 3)]),
    ]
    for artifact, read, name, changes in wrong:
        read()
        file = mapped_copy.copy_path(artifact) / f"{name}.npy"
        sound = file.read_bytes()
        for change in changes:
            change_array(file, change)
            with warnings_logged() as warnings:
                read()
            assert [f"{name}.npy" in warning for warning in warnings] == [True]
            assert file.read_bytes() == sound


def store_pairs(dataset: Dataset) -> Links:
    """Links of 30 vertices, with classes of all pairs and negatives of those for the test."""
    graph = store_graph(dataset, random_adjacency(30, 90, 0, symmetric=False), symmetric=False)
    pairs = {f"{split}/pair": np.array([[0, 1], [1, 2], [2, 3], [3, 4]]) for split in ("train", "valid", "test")}
    values = {f"{split}/value": np.arange(4, dtype=np.int64) % 3 for split in ("train", "valid", "test")}
    negative = {"test/negative": np.arange(8).reshape(4, 2)}
    store_links(dataset, graph, pairs | values | negative, kind="class", num_classes=3, held_out_entries=0)
    return dataset.links()


def test_wrong_values_in_a_catalog_that_cannot_be_written_are_refused(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = stored(catalog)
    map_whole_graph(graph)
    change_array(copy_of(graph) / "indptr.npy", with_value(7, 10**9))
    monkeypatch.setattr(mapped_copy, "share", _refuse)
    with pytest.raises(CorruptError, match=r"indptr\.npy: .*1000000000 "):
        map_whole_graph(graph)


def test_an_artifact_whose_facts_give_wrong_offsets_gets_no_copy(catalog: Catalog) -> None:
    graph, _ = stored(catalog)
    graph.block_nnz[0] += 1
    for read in (map_whole_graph, read_whole_graph):
        with pytest.raises(CorruptError, match=r"block/00000/indices: "):
            read(graph)
    assert list((catalog["g"].path / ".mapped").iterdir()) == []


@pytest.mark.parametrize("block_bytes", [0, -8, 12, 10**12])
def test_blocks_of_checksums_have_a_sensible_size(catalog: Catalog, block_bytes: int) -> None:
    graph, adjacency = stored(catalog)
    map_whole_graph(graph)
    path = copy_of(graph) / "checksums.json"
    content = read_json(path)
    write_json(path, {**content, "block_bytes": block_bytes})
    next(copy_of(graph).glob("checked-*")).unlink()
    with warnings_logged() as warnings:
        np.testing.assert_array_equal(map_whole_graph(graph).matrix.indices, adjacency.indices)
    assert [f"blocks of {block_bytes} bytes" in warning for warning in warnings] == [True]


def checks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A list that gets the folder of every copy that is read to be checked."""
    checked: list[Path] = []

    def count(folder: Path, files: Any) -> None:
        checked.append(folder)
        copy_checksums.check_files(folder, files)

    monkeypatch.setattr(mapped_copy, "check_files", count)
    return checked


def test_each_node_checks_a_copy_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = stored(catalog)
    checked = checks(monkeypatch)
    map_whole_graph(graph)
    map_whole_graph(graph)
    assert checked == []
    for boot in ({"host": "other", "boot": "1"}, {"host": "other", "boot": "2"}):
        monkeypatch.setattr(copy_checksums, "this_boot", lambda boot=boot: boot)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(map_whole_graph, [graph] * 4))
        assert checked == [copy_of(graph)]
        checked.clear()
    # A note that was damaged counts for nothing.
    (note,) = (path for path in copy_of(graph).glob("checked-*") if b"other" in path.read_bytes())
    note.write_bytes(note.read_bytes().replace(b"2", b"3"))
    map_whole_graph(graph)
    map_whole_graph(graph)
    assert checked == [copy_of(graph)]


def test_a_copy_without_sound_checksums_is_made_anew(catalog: Catalog) -> None:
    graph, adjacency = stored(catalog)
    map_whole_graph(graph)
    for damage in (Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-2]), lambda path: flip(path, 99)):
        damage(copy_of(graph) / "checksums.json")
        for note in copy_of(graph).glob("checked-*"):
            note.unlink()
        flip(copy_of(graph) / "indices.npy", 500)
        with warnings_logged() as warnings:
            np.testing.assert_array_equal(map_whole_graph(graph).matrix.indices, adjacency.indices)
        assert "checksums.json" in warnings[0]
        assert check_copy(copy_of(graph)) == 3


def test_a_copy_in_a_catalog_that_cannot_be_written_is_checked(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, adjacency = stored(catalog)
    map_whole_graph(graph)
    checked = checks(monkeypatch)
    monkeypatch.setattr(mapped_copy, "share", _refuse)
    monkeypatch.setattr(copy_checksums, "this_boot", lambda: {"host": "other", "boot": "1"})
    for _ in range(2):
        np.testing.assert_array_equal(map_whole_graph(graph).matrix.indices, adjacency.indices)
    assert checked == [copy_of(graph)] * 2
    flip(copy_of(graph) / "indices.npy", 500)
    with pytest.raises(CorruptError, match=r"indices\.npy: "):
        map_whole_graph(graph)
    flip(copy_of(graph) / "indices.npy", 500)
    np.testing.assert_array_equal(map_whole_graph(graph).matrix.indices, adjacency.indices)
    (copy_of(graph) / "checksums.json").unlink()
    with pytest.raises(CorruptError, match=r"checksums\.json"):
        map_whole_graph(graph)


def test_a_copy_that_is_being_made_is_not_garbage(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, adjacency = stored(catalog)
    found: list[Garbage] = []

    def collect_meanwhile(path: Path) -> None:
        sync_tree(path)
        found.extend(collect_garbage(catalog["g"]))

    monkeypatch.setattr(mapped_copy, "sync_tree", collect_meanwhile)
    np.testing.assert_array_equal(map_whole_graph(graph).matrix.indices, adjacency.indices)
    assert [item.path for item in found if ".mapped" in item.path.parts] == []


def test_vertex_data_and_parts_are_mapped_too(catalog: Catalog) -> None:
    dataset = catalog.create("v")
    feature = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    label = np.arange(50) % 4
    arrays = map_vertices(store_vertices(dataset, feature, label, None))
    np.testing.assert_array_equal(arrays["feature"][[3, 40, 7]], feature[[3, 40, 7]])
    np.testing.assert_array_equal(arrays["label"], label)
    partition = store_small_dataset(catalog).partition(2)
    members = map_part_members(partition)
    for part in range(2):
        np.testing.assert_array_equal(members.of(part), np.flatnonzero(partition.part() == part))


def test_verify_finds_any_flipped_byte_of_a_copy(catalog: Catalog) -> None:
    graph, _ = stored(catalog, weighted=True, n=30)
    dataset = catalog["g"]
    map_whole_graph(graph)
    (finding,) = (finding for finding in dataset.verify() if finding.kind == "mapped")
    assert (finding.key, finding.read, finding.problem) == (copy_of(graph).name, 4, None)
    for file in sorted(copy_of(graph).iterdir()):
        sound = file.read_bytes()
        places = {*range(0, len(sound), max(1, len(sound) // 7)), 70, len(sound) - 1}
        for damaged in [
            *(sound[:k] + bytes([sound[k] ^ 1]) + sound[k + 1 :] for k in places),
            sound[:-1],
            sound + b"x",
        ]:
            file.write_bytes(damaged)
            with pytest.raises(CorruptError, match=file.name):
                check_copy(copy_of(graph))
        file.write_bytes(sound)
    (copy_of(graph) / "indptr.npy").write_bytes(sound)
    (finding,) = (finding for finding in dataset.verify(quick=True) if finding.kind == "mapped")
    assert finding.is_damaged
    # A copy can be made again, so damage to it does not keep the dataset from being exported.
    assert dataset.export(catalog.root / "g.tar")["files"] > 0
    assert ("mapped", copy_of(graph).name) in [(usage.kind, usage.key) for usage in dataset.disk_usage()]


def _flags(path: Path) -> list[str]:
    """The kernel's flags of this process's mappings of a file."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    mappings = (line for line in lines if line.endswith(str(path)))
    return [next(flags for flags in lines if flags.startswith("VmFlags:")) for _ in mappings]


@pytest.mark.parametrize(("pages_around", "available"), [(True, 1 << 40), (False, 0)])
def test_pages_around_those_needed_are_read_if_the_copy_fits_in_memory(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, pages_around: bool, available: int
) -> None:
    monkeypatch.setattr(mapped_rows, "available_memory", lambda: available)
    graph, _ = stored(catalog)
    arrays = map_whole_graph(graph)
    flags = _flags(copy_of(graph) / "indices.npy")
    assert len(arrays.matrix.indices)
    # rr: the mapping's user reads pages in random order.
    assert [" rr " not in line for line in flags] == [pages_around]
