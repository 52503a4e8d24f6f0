"""The reader of links gives what was written, and verification finds pairs that are not what the manifest says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import CorruptError, GnnloomError, NotFoundError
from gnnloom.storage.format.artifact import Artifact
from support.damage import edit_manifest, replace_array
from support.graphs import random_adjacency, store_graph
from support.links import pairs_of, store_links

ADJACENCY = random_adjacency(50, 200, 3, symmetric=True)
PAIRS = pairs_of(ADJACENCY, symmetric=True)
SPLITS = {"test/pair": PAIRS[:10], "valid/pair": PAIRS[10:15], "train/pair": PAIRS[15:]}
GIVEN: dict[str, np.ndarray] = {
    **SPLITS,
    "train/value": np.arange(len(PAIRS) - 15) % 4,
    "valid/value": np.arange(5) % 4,
    "test/value": np.arange(10) % 4,
    "test/negative": np.arange(30).reshape(10, 3),
    "valid/pool": np.array([[3, 1], [4, 4]]),
}


def store(catalog: Catalog, given: dict[str, np.ndarray] = GIVEN, **facts: Any) -> tuple[Dataset, Links]:
    dataset = catalog.create("web")
    graph = store_graph(dataset, ADJACENCY, symmetric=True)
    return dataset, store_links(dataset, graph, given, **{"kind": "class", "num_classes": 4, **facts})


def test_all_that_was_written_is_read(catalog: Catalog) -> None:
    dataset, _ = store(catalog)
    links = dataset.links(method="given")
    assert (links.num_vertices, links.symmetric, links.weighted, links.kind, links.num_classes) == (
        50,
        True,
        False,
        "class",
        4,
    )
    assert dict(links.num_pairs) == {"train": len(PAIRS) - 15, "valid": 5, "test": 10}
    assert links.message_graph == links.graph == dataset.graph().artifact.key
    for split in ("train", "valid", "test"):
        np.testing.assert_array_equal(links.pair(split), SPLITS[f"{split}/pair"])
        np.testing.assert_array_equal(links.value(split, 2, 4), GIVEN[f"{split}/value"][2:4])
    np.testing.assert_array_equal(links.pair("train", 3, 7), PAIRS[18:22])
    np.testing.assert_array_equal(links.weight(2, 9), np.ones(7))
    assert links.weight().dtype == np.uint8
    np.testing.assert_array_equal(links.negative("test", 1, 3), [[3, 4, 5], [6, 7, 8]])
    np.testing.assert_array_equal(links.pool("valid"), [[3, 1], [4, 4]])
    assert [links.num_negatives(split) for split in SPLITS_ORDER] == [0, 0, 3]
    assert [links.num_pooled(split) for split in SPLITS_ORDER] == [0, 2, 0]
    with pytest.raises(NotFoundError, match="train/negative"):
        links.negative("train")
    check_artifact(dataset, links.artifact)


SPLITS_ORDER = ("train", "valid", "test")


def _swapped(pairs: np.ndarray) -> np.ndarray:
    pairs[4] = pairs[4, ::-1]
    return pairs


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("test/pair", _swapped, r"test/pair: pair 4 is .* in descending order"),
        ("valid/pair", lambda pairs: np.where(pairs == pairs[0, 1], 50, pairs), "valid/pair/c/0.*expected 0 to 49"),
        ("train/value", lambda values: values + 1, "train/value.*expected 0 to 3"),
        ("test/negative", lambda ids: ids - 1, "test/negative.*expected 0 to 49"),
        ("valid/pool", lambda ids: ids + 46, "valid/pool.*expected 0 to 49"),
        ("train/weight", lambda weight: weight + 1, "train/weight.*expected 0 to 1"),
    ],
)
def test_values_out_of_range_are_found(
    catalog: Catalog, name: str, change: Callable[[np.ndarray], Any], message: str
) -> None:
    dataset, links = store(catalog)
    changed = replace_array(links.artifact, name, change)
    with pytest.raises(CorruptError, match=message):
        check_artifact(dataset, changed)


def test_a_manifest_that_does_not_fit_its_arrays_is_found(catalog: Catalog) -> None:
    dataset, links = store(catalog)
    facts = links.artifact.facts
    for changes, message in (
        ({"kind": "number"}, "not of the type of a number"),
        ({"kind": "pair"}, "does not fit its values"),
        ({"kind": "nothing"}, "values of kind 'nothing'"),
        ({"num_pairs": {"train": 3, "valid": 5, "test": 10}}, r"train/pair: shape .*, expected \(3, 2\)"),
        ({"num_pairs": {}}, "manifest"),
    ):
        changed = edit_manifest(links.artifact, facts=facts | changes)
        with pytest.raises(GnnloomError, match=message):
            check_artifact(dataset, changed)


@pytest.mark.parametrize("symmetric", [True, False])
def test_verification_compares_what_was_held_out_with_what_the_message_graph_lacks(
    catalog: Catalog, symmetric: bool
) -> None:
    dataset, adjacency = catalog.create("web"), random_adjacency(50, 200, 3, symmetric=symmetric)
    graph, pairs = store_graph(dataset, adjacency, symmetric=symmetric), pairs_of(adjacency, symmetric=symmetric)
    without = adjacency.tolil()
    for source, target in pairs[:15]:
        without[target, source] = 0
        if symmetric:
            without[source, target] = 0
    message = store_graph(dataset, without.tocsr(), symmetric=symmetric).artifact.key
    given = {"test/pair": pairs[:10], "valid/pair": pairs[10:15], "train/pair": pairs[15:]}
    links = store_links(dataset, graph, given, message)
    check_artifact(dataset, links.artifact)

    def another(held_out: np.ndarray) -> np.ndarray:
        held_out[3] = pairs[20]
        return held_out

    changed = replace_array(links.artifact, "test/pair", another)
    with pytest.raises(CorruptError, match="are not the entries that graph/"):
        check_artifact(dataset, changed)
    # What is gone cannot be compared.
    dataset_without = Artifact(changed.path)
    for info in dataset.artifacts("graph"):
        if info.key == message:
            (info.path / "manifest.json").unlink()
    check_artifact(dataset, dataset_without)
