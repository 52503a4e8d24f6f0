"""Pairs of a relation from files are the pairs of the tables, and the graph that models read lacks their edges."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import gnnloom
from gnnloom.pipeline.links.given.given_stage import GivenLinks
from gnnloom.pipeline.links.options import FileOptions
from gnnloom.pipeline.links.relation.given import store_relation_links
from gnnloom.pipeline.links.relation.projection import project_given_relation
from gnnloom.pipeline.tasks.cluster import InProcessCluster, ThreadedCluster
from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.workflows.cli.main import cli
from support.damage import replace_array
from support.stopping import StoppingCluster

Pair = tuple[str, int]


class Shop:
    """Users with names buy items with numbers, some of them several times, and users follow each other."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(3)
        self.folder = folder
        self.users = [f"user {number}" for number in rng.permutation(30)]
        self.items = rng.permutation(25) * 7 + 3
        self.buys = pd.DataFrame({"u": rng.choice(self.users, 240), "i": rng.choice(self.items, 240)})
        self.buys["price"] = rng.integers(1, 99, len(self.buys))
        follows = pd.DataFrame({"a": rng.choice(self.users, 80), "b": rng.choice(self.users, 80)})
        self.dataset: Dataset = gnnloom.ingest(
            "shop",
            relations={
                ("user", "buys", "item"): (self.buys, ["u", "i", "price as weight", "price as feature"]),
                ("user", "follows", "user"): (follows[follows.a != follows.b], ["a", "b"]),
            },
            vertices={"user": pd.DataFrame({"id": self.users}), "item": pd.DataFrame({"id": self.items})},
            merge="keep",
            workers=0,
            catalog=folder,
        )
        distinct = self.buys[["u", "i"]].drop_duplicates()
        self.valid, self.test, self.train = distinct[:20], distinct[20:60], distinct[60:]
        bought = set(self.buys[["u", "i"]].itertuples(index=False, name=None))
        others = ((user, int(item)) for user in self.users for item in self.items if (user, item) not in bought)
        #: A pair that is no edge is a pair to predict as well.
        self.test = pd.concat([self.test, pd.DataFrame([next(others)], columns=["u", "i"])])

    def write(self, name: str, pairs: pd.DataFrame) -> Path:
        path, text = self.folder / f"{name}.csv", pairs.to_csv(index=False)
        # Links are found again by the files, whose times count.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        return path

    def options(self, **options: Any) -> FileOptions:
        given = {"valid": self.write("valid", self.valid), "test": self.write("test", self.test), "header": True}
        return FileOptions(relation="buys", **{**given, **options})

    def store(self, cluster: Any = None, **options: Any) -> Links:
        relation = self.dataset.typed_graph(self.graph).relation("buys")
        given = GivenLinks.of(self.options(**options))
        return store_relation_links(self.dataset, relation, given, cluster or InProcessCluster())

    @property
    def graph(self) -> str:
        (info,) = self.dataset.ingested_graphs()
        return info.key

    def named(self, pairs: np.ndarray) -> list[Pair]:
        """Pairs with the ids of the tables."""
        graph = self.dataset.typed_graph(self.graph)
        users, items = graph.original_name("user"), graph.original_id("item")
        return [(users[source], int(items[target])) for source, target in pairs.tolist()]


def rows(table: pd.DataFrame) -> list[Pair]:
    return [(user, int(item)) for user, item in table[["u", "i"]].itertuples(index=False)]


def edges_of(shop: Shop, key: str) -> Counter[tuple[str, int, int]]:
    """The edges of a graph with their prices, by the ids of the tables."""
    relation = shop.dataset.typed_graph(key).relation("buys")
    blocks = [np.stack([source, target], 1) for source, target, _ in relation.edge_blocks()]
    pairs = shop.named(np.concatenate(blocks))
    prices = relation.column("weight").astype(int).tolist()
    assert relation.column("feature")[:, 0].astype(int).tolist() == prices
    return Counter((*pair, price) for pair, price in zip(pairs, prices, strict=True))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def content(folder: Path) -> dict[str, str]:
    """Digest of every file of an artifact but the manifest, which has times in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_pairs_are_those_of_the_files_and_the_message_graph_lacks_their_edges(shared: Shop) -> None:
    links = shared.store(negatives=3)
    for split, table in (("valid", shared.valid), ("test", shared.test)):
        assert shared.named(links.pair(split)) == rows(table)
    held_out = {*rows(shared.valid), *rows(shared.test)}
    prices = Counter(shared.buys.itertuples(index=False, name=None))
    left = Counter({row: count for row, count in prices.items() if row[:2] not in held_out})
    # All parallel edges of a pair are held out, with their columns.
    assert sum(left.values()) < len(shared.buys) - len(held_out) + 1
    assert edges_of(shared, links.message_graph) == left
    assert links.artifact.facts["held_out_entries"] == len(shared.buys) - sum(left.values())
    # Without pairs for training, these are the edges that are left.
    assert Counter(shared.named(links.pair("train"))) == Counter(row[:2] for row in left.elements())
    bought = set(rows(shared.buys))
    for split, table in (("valid", shared.valid), ("test", shared.test)):
        pool = shared.named(links.pool(split))
        assert len(pool) == 3 * len(table)
        assert not bought & set(pool)
    assert links.artifact.facts["edges"] == {
        "valid/pair": len(shared.valid),
        "test/pair": len(shared.test) - 1,
        "valid/pool": 0,
        "test/pool": 0,
    }
    check_artifact(shared.dataset, links.artifact)
    check_artifact(shared.dataset, shared.dataset.typed_graph(links.message_graph).artifact)
    assert shared.store(negatives=3).artifact.manifest == links.artifact.manifest


def test_pairs_for_training_and_negatives_of_each_pair_are_read_too(shared: Shop) -> None:
    rng = np.random.default_rng(1)
    targets = rng.choice(shared.items, (len(shared.test), 4))
    np.save(shared.folder / "targets.npy", targets)
    given: dict[str, Any] = {"test_targets": shared.folder / "targets.npy", "valid_negatives": None}
    train, pool = shared.write("train", shared.train), shared.write("pool", shared.train[:50])
    links = shared.store(**{**given, "train": train, "valid_negatives": pool, "keep_edges": True})
    assert shared.named(links.pair("train")) == rows(shared.train)
    assert shared.named(links.pool("valid")) == rows(shared.train[:50])
    items = shared.dataset.typed_graph(links.graph).original_id("item")
    np.testing.assert_array_equal(items[links.negative("test")], targets)
    # The graph stays as it is.
    assert links.message_graph == links.graph
    assert links.artifact.facts["edges"]["valid/pool"] == 50


def test_an_export_has_the_pairs_with_the_ids_of_the_tables(shared: Shop) -> None:
    links, out = shared.store(), shared.folder / "exported.csv"
    arguments = ["--catalog", str(shared.folder), "export", "shop", "pairs", "--links", links.artifact.key]
    done = CliRunner().invoke(cli, [*arguments, "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    table = pd.read_csv(out)
    for split, given in (("valid", shared.valid), ("test", shared.test)):
        own = table[table["split"] == split][["source", "target"]]
        assert list(own.itertuples(index=False, name=None)) == rows(given)


def test_batches_of_the_loader_lack_the_edges_of_their_pairs_and_the_reverses(shared: Shop) -> None:
    pytest.importorskip("torch_geometric")
    links = shared.store()
    loader = gnnloom.loader(shared.dataset, links=links, fanout=(-1,), batch_size=16, reverse=True, features="none")
    sources, targets = links.pair("train").T.tolist()
    seen = 0
    for batch in loader:
        users, items = batch["user"].n_id.tolist(), batch["item"].n_id.tolist()
        ends, label = batch["user", "buys", "item"].edge_label_index, batch["user", "buys", "item"].edge_label
        pairs = {(users[u], items[i]) for u, i in ends[:, label == 1].T.tolist()}
        assert pairs <= set(zip(sources, targets, strict=True))
        seen += int((label == 1).sum())
        for name, first, second in (("buys", users, items), ("rev_buys", items, users)):
            edge_type = ("user", name, "item") if name == "buys" else ("item", name, "user")
            drawn = {(first[a], second[b]) for a, b in batch[edge_type].edge_index.T.tolist()}
            assert not {pair if name == "buys" else pair[::-1] for pair in pairs} & drawn
    assert seen == len(sources)


def test_the_plan_states_what_runs(shop: Shop) -> None:
    relation, given = shop.dataset.typed_graph().relation("buys"), GivenLinks.of(shop.options())
    plan = project_given_relation(shop.dataset, relation, given, 1, 1 << 30)
    cluster = StoppingCluster()
    links = shop.store(cluster)
    assert (plan.key, plan.message_graph) == (links.artifact.key, links.message_graph)
    # Tasks are listed again whenever a phase is resumed.
    assert plan.tasks == len({(function, name) for function, name in cluster.ran})
    assert project_given_relation(shop.dataset, relation, given, 1, 1 << 30).is_done


def test_verification_finds_wrong_positions_of_held_out_edges(shop: Shop) -> None:
    links = shop.store()
    for change in (lambda array: array[::-1], lambda array: array + 10**6):
        damaged = replace_array(links.artifact, "test/held_out", change)
        with pytest.raises(CorruptError):
            check_artifact(shop.dataset, damaged)
        shutil.rmtree(links.artifact.path)
        links = shop.store()


def test_what_does_not_fit_the_relation_is_refused(shared: Shop) -> None:
    wrong_item = pd.DataFrame({"u": [shared.users[0]], "i": [999]})
    swapped = shared.valid[["i", "u"]]
    refused: list[tuple[str, dict[str, Any]]] = [
        ("type item.*999.*wrong.csv, row", {"valid": shared.write("wrong", wrong_item)}),
        ("type user.*swapped.csv, row", {"valid": shared.write("swapped", swapped)}),
        ("several splits; one is .user.*--allow-overlap", {"valid": shared.write("again", shared.test[:3])}),
        ("train", {"values": "class"}),
        ("reciprocal", {"reciprocal": "together"}),
    ]
    for named, options in refused:
        with pytest.raises(InputError, match=named):
            shared.store(**options)
    with pytest.raises(InputError, match="relation: buys, follows"):
        gnnloom.read_links(shared.dataset, valid="valid.csv", test="test.csv", workers=0)


@pytest.mark.parametrize("kind", ["class", "number"])
def test_values_of_pairs_are_those_of_a_column_of_the_files(shop: Shop, kind: str) -> None:
    rng, files, expected = np.random.default_rng(8), dict[str, Path](), dict[str, list[tuple[str, int, float]]]()
    # A pair may occur twice in a split, with a value each.
    train = pd.concat([shop.train, shop.train[:2]])
    for split, pairs in (("train", train), ("valid", shop.valid), ("test", shop.test)):
        values = rng.integers(0, 4, len(pairs)) if kind == "class" else rng.normal(size=len(pairs)).round(3)
        table = pairs.assign(note="x", value=values)
        files[split] = shop.write(f"{kind}-{split}", table)
        expected[split] = [(*pair, value) for pair, value in zip(rows(table), values.tolist(), strict=True)]
    options = {"values": kind, "columns": "u,i,value", "extra_columns": True, **files}
    relation = shop.dataset.typed_graph(shop.graph).relation("buys")
    given, cluster = GivenLinks.of(shop.options(**options)), StoppingCluster()
    plan = project_given_relation(shop.dataset, relation, given, 1, 1 << 30)
    links = shop.store(cluster, **options)
    assert plan.key == links.artifact.key
    assert plan.tasks == len({(function, name) for function, name in cluster.ran})
    assert (links.kind, links.num_classes) == (kind, 4 if kind == "class" else 0)
    assert not any(links.num_pooled(split) for split in files)
    for split in files:
        found = zip(shop.named(links.pair(split)), links.value(split).tolist(), strict=True)
        # Numbers are float32.
        assert [(*pair, round(value, 3)) for pair, value in found] == expected[split]
    check_artifact(shop.dataset, links.artifact)
    first = content(links.artifact.path)
    shop.dataset.remove_artifact("links", links.artifact.key, force=True)
    assert content(shop.store(ThreadedCluster(3, 1 << 30), **options).artifact.path) == first


@pytest.mark.parametrize(
    ("kind", "value"),
    [("class", ""), ("class", "-1"), ("class", "1.5"), ("class", "fraud"), ("number", ""), ("number", "nan")],
)
def test_missing_and_wrong_values_name_the_file_and_the_row(shop: Shop, kind: str, value: str) -> None:
    files = {}
    for split, table in (("train", shop.train), ("valid", shop.valid), ("test", shop.test)):
        values = ["1"] * len(table)
        if split == "test":
            values[3] = value
        files[split] = shop.write(f"values-{kind}-{split}", table.assign(value=values))
    with pytest.raises(InputError, match=rf"values-{kind}-test\.csv, (row 3|line 5): "):
        shop.store(values=kind, columns="u,i,value", **files)
    assert not [info for info in shop.dataset.artifacts("links") if info.state == "complete"]
