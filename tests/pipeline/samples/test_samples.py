"""Samples on disk are the batches that training would draw, with the features of their vertices."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.samples.options import SampleOptions, samples_key
from gnnloom.pipeline.samples.projection import project_samples
from gnnloom.pipeline.samples.stage import SEGMENT_BYTES, SampleSizes, find_inputs, sample_phases, write_samples
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import count
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.samples import Samples
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import BudgetError, CorruptError, InputError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.upkeep.garbage import find_garbage
from support.damage import replace_array
from support.lanes import flip_bit
from support.problems import Problem, problem
from support.sampled import store_for_sampling
from support.samples import in_memory, seeded
from support.scratch import small_chunks
from support.stopping import StoppedError, StoppingCluster

GIVEN = problem("web", 300, 1500, symmetric=False)
OPTIONS: dict[str, Any] = {"fanout": (4, 3), "batch_size": 7, "epochs": 2, "seed": 5}
MIB = 1 << 20


def store(root: Path, given: Problem = GIVEN) -> Dataset:
    return store_for_sampling(Catalog(root), given, 3, shards=False)


def sample(dataset: Dataset, cluster: Any = None, segment_bytes: int = SEGMENT_BYTES, **options: Any) -> Samples:
    chosen = SampleOptions(**{**OPTIONS, "cache_memory": 40 * 20, **options})
    partition = dataset.partition(parts=chosen.ranks) if chosen.ranks > 1 else None
    cluster = cluster or InProcessCluster()
    found = write_samples(dataset, dataset.graph(), partition, chosen, cluster, segment_bytes=segment_bytes)
    assert isinstance(found, Samples)
    return found


def content(folder: Path) -> dict[str, str]:
    """Digest of every file of an artifact but the manifest, which has times in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
def test_batches_are_those_of_the_sampler_with_the_features_and_labels_of_their_vertices(
    tmp_path: Path, ranks: int, weighted: bool
) -> None:
    given = problem("web", 300, 1500, symmetric=False, weighted=weighted)
    dataset = store(tmp_path, given)
    samples = sample(dataset, ranks=ranks)
    graph, part = in_memory(given.adjacency, weighted=weighted), given.part(ranks)
    for rank in range(ranks):
        seeds = np.flatnonzero(given.training & (part == rank))
        sampler = seeded(graph, 5, seeds, (4, 3), 7)
        assert samples.num_batches[rank] == sampler.num_batches > 1
        hot = samples.hot_features(rank)
        assert len(hot[""]) == 40
        for epoch in range(2):
            stored = [
                batch
                for number in range(samples.num_segments(rank))
                for batch in samples.read_segment(rank, epoch, number, hot)
            ]
            for number, found in enumerate(stored):
                expected = layered_batch(graph, sampler.sample(epoch, number))
                np.testing.assert_array_equal(found.batch.vertices, expected.vertices)
                np.testing.assert_array_equal(found.batch.row_nnz, expected.row_nnz)
                np.testing.assert_array_equal(found.batch.degree, expected.degree)
                for mine, other in zip(found.batch.blocks, expected.blocks, strict=True):
                    np.testing.assert_array_equal(mine.indptr, other.indptr)
                    np.testing.assert_array_equal(mine.indices, other.indices)
                    assert (mine.data is None) == (not weighted)
                    np.testing.assert_array_equal(mine.data, other.data)
                np.testing.assert_array_equal(found.feature, given.feature[expected.vertices])
                np.testing.assert_array_equal(found.label, given.label[expected.seeds])
            assert len(stored) == sampler.num_batches


@pytest.mark.parametrize("cache_memory", [0, 40 * 20])
def test_features_in_many_chunks_are_read_one_chunk_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_memory: int
) -> None:
    dataset = store(tmp_path)
    # Chunks end within batches, and batches within chunks.
    small_chunks(monkeypatch, 1000)
    samples = sample(dataset, cache_memory=cache_memory)
    array = samples.artifact.array("rank/00000/epoch/00000/segment/000000/feature")
    assert 4 * array.chunk_rows < len(array)
    asked = list[int]()
    plain = ArrayReader.read

    def read(self: ArrayReader, *given: Any, **options: Any) -> Any:
        found = plain(self, *given, **options)
        if self.where == array.where:
            asked.append(len(found))
        return found

    monkeypatch.setattr(ArrayReader, "read", read)
    stored = list(samples.read_segment(0, 0, 0, samples.hot_features(0)))
    assert len(stored) > 4
    for found in stored:
        np.testing.assert_array_equal(found.feature, GIVEN.feature[found.batch.vertices])
    assert sum(asked) == len(array)
    assert max(asked) == array.chunk_rows


@pytest.mark.slow
def test_damaged_records_and_a_damaged_plan_of_a_killed_command_are_made_again(tmp_path: Path) -> None:
    # One batch per segment, so that there are many tasks.
    small: dict[str, Any] = {"ranks": 3, "segment_bytes": 1}
    expected = content(sample(store(tmp_path / "whole"), **small).artifact.path)
    killed = store(tmp_path / "killed")
    with pytest.raises(StoppedError):
        sample(killed, StoppingCluster(5), **small)
    (work,) = killed.path.glob("samples/*/.work")
    # Besides arrays, only records and a plan are there.
    files = [path for path in work.rglob("*") if path.is_file()]
    assert {path.suffix for path in map(flip_bit, files)} == {".json"}
    assert len(files) == 6
    assert content(sample(killed, **small).artifact.path) == expected


@pytest.mark.slow
def test_the_counted_tasks_are_those_that_run(tmp_path: Path) -> None:
    dataset, cluster, options = store(tmp_path), StoppingCluster(), SampleOptions(**OPTIONS, ranks=3)
    graph, partition = dataset.graph(), dataset.partition(parts=3)
    write_samples(dataset, graph, partition, options, cluster, segment_bytes=1)
    inputs, writer = find_inputs(dataset, graph, partition, options), ArtifactWriter(tmp_path, "samples", "")
    seeds = np.bincount(GIVEN.part(3)[GIVEN.training], minlength=3).tolist()
    counted = count(sample_phases(writer, inputs, SampleSizes.of(inputs, segment_bytes=1), seeds))
    functions = [function for function, _ in cluster.ran]
    assert [phase.tasks for phase in counted] == [functions.count("prepare_rank"), functions.count("write_segment")]
    # Some vertices of the training split have no label, which a projection does not know.
    shutil.rmtree(dataset.path / "samples")
    projected = project_samples(dataset, graph, partition, options, 1, segment_bytes=1)
    assert projected.tasks >= len(functions)


def test_asking_twice_makes_nothing_new_and_the_key_is_known_before(tmp_path: Path) -> None:
    dataset = store(tmp_path)
    first = sample(dataset)
    inputs = {"graph": dataset.graph().artifact.key, "vertices": dataset.vertices().artifact.key}
    assert samples_key(inputs, SampleOptions(**OPTIONS, cache_memory=800)) == first.artifact.key
    before = first.artifact.manifest
    assert sample(dataset).artifact.manifest == before
    assert sample(dataset, seed=6).artifact.key != first.artifact.key
    assert dataset.samples(seed=5, ranks=1).artifact.key == first.artifact.key


def test_the_frequent_rows_are_stored_once(tmp_path: Path) -> None:
    dataset = store(tmp_path)
    with_hot, without = sample(dataset), sample(dataset, cache_memory=0)
    packed = [
        sum(record.shape[0] for name, record in each.artifact.records.items() if name.endswith("/feature"))
        for each in (with_hot, without)
    ]
    occurrences = sum(
        len(batch.batch.vertices)
        for epoch in range(2)
        for number in range(without.num_segments(0))
        for batch in without.read_segment(0, epoch, number, without.hot_features(0))
    )
    assert packed[1] == occurrences
    # The frequent vertices are in more batches than others.
    assert packed[0] < occurrences * (1 - 40 / 300)


def _second_vertex_twice(vertex: np.ndarray) -> np.ndarray:
    changed = vertex.copy()
    changed[1] = changed[0]
    return changed


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("indices", lambda array: array + 10**6, "outside its block"),
        ("vertex", _second_vertex_twice, "twice in a batch"),
        ("vertex", lambda array: array + 300, "expected 0 to 299"),
        ("hot", lambda array: np.where(array < 0, 0, array), "one for each packed vertex"),
        ("hot", lambda array: array + 40, "outside the 40"),
        ("drawn", lambda array: array + 1, "outside its block"),
    ],
)
def test_verification_finds_wrong_samples(tmp_path: Path, name: str, change: Any, message: str) -> None:
    dataset = store(tmp_path)
    artifact = sample(dataset).artifact
    check_artifact(dataset, artifact)
    damaged = replace_array(artifact, f"rank/00000/epoch/00001/segment/000000/{name}", change)
    with pytest.raises(CorruptError, match=message):
        check_artifact(dataset, damaged)


OUT_OF_RANGE: list[tuple[str, Any, str]] = [
    ("vertex", lambda array: array + 300, "expected 0 to 299"),
    ("vertex", lambda array: array - 300, "expected 0 to 299"),
    ("hot", lambda array: array + 40, "expected -1 to 39"),
    ("hot", lambda array: array * 0 - 1, "fewer features or labels"),
    ("layer_size", lambda array: -array, "expected 0 to"),
    ("drawn", lambda array: array - 100, "expected 0 to"),
    ("indices", lambda array: array + 307, "outside its block"),
    ("indices", lambda array: array - 307, "outside its block"),
    ("label", lambda array: array + 100, "expected -1 to"),
]


def _always(array: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda _: array


def test_reading_refuses_ids_out_of_range(tmp_path: Path) -> None:
    artifact, prefix = sample(store(tmp_path)).artifact, "rank/00000/epoch/00001/segment/000000"
    for name, change, message in OUT_OF_RANGE:
        sound = artifact.array(f"{prefix}/{name}").read()
        samples = Samples(replace_array(artifact, f"{prefix}/{name}", change))
        with pytest.raises(CorruptError, match=message):
            list(samples.read_segment(0, 1, 0, samples.hot_features(0)))
        artifact = replace_array(samples.artifact, f"{prefix}/{name}", _always(sound))


def test_verification_finds_a_seed_that_an_epoch_lacks(tmp_path: Path) -> None:
    dataset = store(tmp_path)
    damaged = replace_array(sample(dataset).artifact, "rank/00000/seed", lambda array: array - (array == array[0]))
    with pytest.raises(CorruptError, match="every seed once"):
        check_artifact(dataset, damaged)


@pytest.mark.parametrize("kind", ["graph", "vertices", "partition"])
def test_samples_whose_inputs_are_gone_are_garbage(tmp_path: Path, kind: str) -> None:
    dataset = store(tmp_path)
    path = sample(dataset, ranks=3).artifact.path
    assert path not in [item.path for item in find_garbage(dataset)]
    key = Artifact(path).inputs[kind]
    Catalog(tmp_path)["web"].path.joinpath(kind, key).rename(tmp_path / "elsewhere")
    assert path in [item.path for item in find_garbage(dataset)]


def test_what_cannot_be_sampled_is_refused(tmp_path: Path) -> None:
    dataset = store(tmp_path)
    with pytest.raises(InputError, match=r"fanout 0:.*1,"):
        SampleOptions(fanout=(3, 0))
    with pytest.raises(InputError, match="batch_size 0"):
        SampleOptions(batch_size=0)
    with pytest.raises(InputError, match="need a partition"):
        write_samples(dataset, dataset.graph(), None, SampleOptions(ranks=2), InProcessCluster())
    with pytest.raises(InputError, match="3 parts, but 2 ranks"):
        write_samples(dataset, dataset.graph(), dataset.partition(parts=3), SampleOptions(ranks=2), InProcessCluster())
    with pytest.raises(BudgetError, match="more --memory"):
        sample(dataset, InProcessCluster(memory=300 * MIB))
    unlabeled = problem("empty", 50, 100, symmetric=True)
    unlabeled.split[:] = 3
    with pytest.raises(InputError, match="no vertex has a label"):
        sample(store_for_sampling(Catalog(tmp_path / "none"), unlabeled, 1, shards=False))
