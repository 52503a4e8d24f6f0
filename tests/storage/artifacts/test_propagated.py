"""The reader of propagated values gives what was written, and verification finds values that cannot be right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.propagated import COLUMNS, Propagated, value_path
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import CorruptError, GnnloomError, NotFoundError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import Artifact
from support.damage import edit_manifest, replace_array
from support.graphs import random_adjacency, store_graph
from support.propagated import reference_steps, store_propagated

ADJACENCY = random_adjacency(50, 200, 3, symmetric=True)
#: Two whole blocks of columns, and one that is narrower.
WIDTH = 2 * COLUMNS + 3
STEPS = reference_steps(ADJACENCY, np.random.default_rng(0).random((50, WIDTH)), 3, "symmetric")


def store(catalog: Catalog, **parameters: Any) -> tuple[Dataset, Propagated]:
    dataset = catalog.create("web")
    graph = store_graph(dataset, ADJACENCY, symmetric=True)
    return dataset, store_propagated(dataset, graph.artifact.key, STEPS, **parameters)


def test_all_that_was_written_is_read(catalog: Catalog) -> None:
    dataset, _ = store(catalog)
    found = dataset.propagated(steps=3, of="feature")
    assert (found.num_vertices, found.num_features, found.num_steps, found.steps) == (50, WIDTH, 3, (1, 2, 3))
    assert (found.of, found.normalization, found.ppr) == ("feature", "symmetric", None)
    assert found.graph == dataset.graph().artifact.key
    for step, values in zip(found.steps, STEPS, strict=True):
        np.testing.assert_array_equal(found.read(step), values.astype(np.float32))
        np.testing.assert_array_equal(found.read(step, 7, 12), values[7:12].astype(np.float32))
    assert [stop - start for start, stop in found.ranges()] == [50]
    check_artifact(dataset, found.artifact)
    assert all(finding.problem is None for finding in dataset.verify())


def test_reads_are_counted(catalog: Catalog) -> None:
    dataset, _ = store(catalog)
    counter = ReadCounter()
    dataset.propagated(counter=counter).read(2, 0, 10)
    assert (counter.files, counter.bytes > 0) == (3, True)
    other = ReadCounter()
    dataset.propagated().read(2, 0, 10, other)
    assert (other.files, other.bytes) == (counter.files, counter.bytes)


def test_only_the_last_step_of_personalized_pagerank_is_stored(catalog: Catalog) -> None:
    dataset, found = store(catalog, ppr=0.1)
    assert (found.num_steps, found.steps, found.ppr) == (3, (3,), 0.1)
    np.testing.assert_array_equal(found.read(3), STEPS[2].astype(np.float32))
    with pytest.raises(NotFoundError, match="step 2 "):
        found.read(2)
    check_artifact(dataset, found.artifact)


def test_other_programs_read_the_values(catalog: Catalog) -> None:
    dataset, found = store(catalog)
    group = zarr.open_group(dataset.path, mode="r", use_consolidated=True)
    value: Any = group[f"propagated/{found.artifact.key}/{value_path(2, 1)}"]
    np.testing.assert_array_equal(value[:], STEPS[1][:, COLUMNS : 2 * COLUMNS].astype(np.float32))
    assert value.metadata.dimension_names == ("vertex", "column")


def test_propagated_values_are_exported_traced_and_collected_like_all_artifacts(
    catalog: Catalog, tmp_path: Path
) -> None:
    dataset, found = store(catalog)
    name, graph = f"propagated/{found.artifact.key}", f"graph/{found.graph}"
    dataset.export(tmp_path / "web.tar")
    imported = catalog.import_dataset(tmp_path / "web.tar", "copy")
    assert imported.propagated().artifact.digest == found.artifact.digest
    lineage = dataset.lineage()
    assert lineage[name].inputs == {"graph": graph}
    assert name in lineage[graph].outputs
    assert f"propagated {found.artifact.key}" in [f"{usage.kind} {usage.key}" for usage in dataset.disk_usage()]
    with pytest.raises(GnnloomError, match="propagated"):
        dataset.remove_artifact("graph", found.graph)
    dataset.remove_artifact("graph", found.graph, force=True)
    assert [item.path.name for item in dataset.collect_garbage()][:1] == [found.artifact.key]
    assert not found.artifact.path.exists()


def _facts(**changes: Any) -> Callable[[Artifact], Artifact]:
    return lambda artifact: edit_manifest(artifact, facts={**artifact.facts, **changes})


def _infinite(artifact: Artifact) -> Artifact:
    def change(values: np.ndarray) -> np.ndarray:
        values[3, 1] = np.inf
        return values

    return replace_array(artifact, value_path(3, 2), change)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_facts(steps=[1, 2]), "steps"),
        (_facts(steps=[]), "no values"),
        (_facts(columns=4), "blocks of 4 columns"),
        (_facts(num_features=WIDTH - 1), "shape"),
        (_facts(num_features=WIDTH + COLUMNS), "9 arrays, expected 4 for each of 3 steps"),
        (_facts(num_features="many"), "not the manifest of propagated values"),
        (_infinite, "not a finite number"),
    ],
)
def test_damage_behind_right_digests_is_found(
    catalog: Catalog, damage: Callable[[Artifact], Artifact], message: str
) -> None:
    dataset, found = store(catalog)
    artifact = damage(found.artifact)
    with pytest.raises(CorruptError, match=message):
        check_artifact(dataset, artifact)


def test_a_block_that_is_missing_is_an_error(catalog: Catalog) -> None:
    _, found = store(catalog)
    chunk = found.artifact.path / value_path(1, 0) / "c" / "0" / "0"
    chunk.unlink()
    with pytest.raises(CorruptError, match="the chunk is missing"):
        Propagated(Artifact(found.artifact.path)).read(1)
