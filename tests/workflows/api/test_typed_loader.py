"""Batches of graphs with types: with all neighbors, models of PyG see the whole graph; values are from the tables."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import gnnloom
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.checks.copy_invariants import check_copy
from gnnloom.storage.errors import GnnloomError, InputError, NotFoundError
from support.tolerance import assert_close
from support.typed_models import Relational, TypedModel, attention, contents, hgt, load, sage
from support.typed_papers import WRITES, store, tables, whole_graph

SAMPLED: dict[str, Any] = {"fanout": (3, 2), "batch_size": 7, "of_type": "paper", "seed": 5}


@pytest.fixture(autouse=True, scope="module")
def _pyg() -> None:
    # Not while tests are collected, which every process does: it takes seconds.
    pytest.importorskip("torch_geometric.nn")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return store(tmp_path_factory.mktemp("typed") / "catalog", "papers", tables())


@pytest.mark.parametrize(
    "fanout", [(3, 2), (-1, 1), {"writes": (2, 4), "cites": 1, "about": 0, "knows": -1, "near": 2}]
)
def test_batches_have_parts_of_the_whole_graph(stored: Dataset, fanout: Any) -> None:
    whole = whole_graph(stored)
    loader = load(stored, **{**SAMPLED, "fanout": fanout, "features": "float64"})
    by_relation = dict.fromkeys(["writes", "cites", "about", "knows", "near"], fanout)
    if isinstance(fanout, dict):
        by_relation = {name: value if isinstance(value, tuple) else (value,) * 2 for name, value in fanout.items()}
    seen = []
    for batch in loader:
        assert batch.node_types == list(whole.node_types)
        # In the same order, on which parameters of HGT depend.
        assert batch.edge_types == whole.edge_types
        for name in whole.node_types:
            n_id = batch[name].n_id
            assert batch[name].num_nodes == len(n_id) == sum(batch[name].num_sampled_nodes)
            for array in ("x", "y"):
                assert (array in batch[name]) == (array in whole[name])
                if array in whole[name]:
                    assert torch.equal(batch[name][array], whole[name][array][n_id])
        seeds = batch["paper"].n_id[: batch["paper"].batch_size]
        known = whole["paper"].train_mask.nonzero()[:, 0]
        assert torch.equal(known[batch["paper"].input_id], seeds)
        seen.append(seeds)
        for source, name, target in whole.edge_types:
            own, edges = batch[source, name, target], whole[source, name, target]
            assert len(own.e_id) == len(own.e_id.unique()) == sum(own.num_sampled_edges)
            ends = torch.stack([batch[end].n_id[own.edge_index[at]] for at, end in enumerate((source, target))])
            assert torch.equal(ends, edges.edge_index[:, own.e_id])
            assert set(own.keys()) - {"e_id", "num_sampled_edges"} == set(edges.keys())
            for column in set(edges.keys()) - {"edge_index"}:
                assert torch.equal(own[column], edges[column][own.e_id])
            # No row has more edges than the fan-out of its hop, nor fewer if the graph has more.
            first, drawn = 0, torch.bincount(own.edge_index[1], minlength=batch[target].num_nodes)
            stored_rows = torch.bincount(edges.edge_index[1], minlength=whole[target].num_nodes)[batch[target].n_id]
            for hop, count in enumerate(batch[target].num_sampled_nodes[:2]):
                most = by_relation[name][hop]
                wanted = stored_rows[first : first + count]
                assert torch.equal(drawn[first : first + count], wanted if most < 0 else wanted.clamp(max=most))
                first += count
    assert sorted(torch.cat(seen).tolist()) == whole["paper"].train_mask.nonzero()[:, 0].tolist()


def test_edges_have_the_values_of_their_rows_of_the_table(stored: Dataset) -> None:
    """Through the numbers of the rows that ingest keeps next to the edges."""
    table, relation = tables()["writes"], stored.typed_graph().relation("writes")
    row = np.concatenate([relation.rows(number) for number in range(relation.num_blocks)])
    for batch in load(stored, **SAMPLED):
        own = batch["author", "writes", "paper"]
        rows = table.iloc[row[own.e_id.numpy()]]
        assert batch["author"].n_id[own.edge_index[0]].tolist() == rows["a"].tolist()
        assert batch["paper"].n_id[own.edge_index[1]].tolist() == rows["p"].tolist()
        np.testing.assert_array_equal(own.edge_attr, rows[["share", "rank"]].to_numpy(np.float32))
        np.testing.assert_array_equal(own.edge_weight, rows["weight"])
        assert own.time.tolist() == rows["day"].to_numpy(f"M8[{relation.time_unit}]").astype(np.int64).tolist()
        assert [relation.classes[each] for each in own.edge_label.tolist()] == rows["role"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "has_attributes"), [(sage, False), (attention, True), (hgt, False), (Relational, False)]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_with_all_neighbors_models_of_pyg_see_the_whole_graph(
    stored: Dataset, layer: Callable[[Any], nn.Module], has_attributes: bool, reverse: bool
) -> None:
    whole = whole_graph(stored, reverse=reverse)
    torch.manual_seed(3)
    model = TypedModel(whole, layer, has_attributes=has_attributes).double()
    with torch.no_grad():
        model(whole, lambda name: torch.arange(whole[name].num_nodes))
    options = {**SAMPLED, "fanout": (-1, -1), "features": "float64"} | ({"reverse": True} if reverse else {})
    target = torch.randn(whole["paper"].num_nodes, 6, dtype=torch.float64)
    seeds = whole["paper"].train_mask
    out = model(whole, lambda name: torch.arange(whole[name].num_nodes))["paper"]
    (out * target)[seeds].sum().backward()
    wanted = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    assert len(wanted) > 4
    model.zero_grad()
    for batch in load(stored, **options):
        assert batch.edge_types == whole.edge_types
        size = batch["paper"].batch_size
        found = model(batch, lambda name, own=batch: own[name].n_id)["paper"][:size]
        assert_close(found.detach().numpy(), out[batch["paper"].n_id[:size]].detach().numpy())
        (found * target[batch["paper"].n_id[:size]]).sum().backward()
    for name, each in model.named_parameters():
        assert (each.grad is None) == (name not in wanted), name
        if each.grad is not None:
            np.testing.assert_allclose(each.grad, wanted[name], rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("reverse", [False, True])
def test_one_type_and_one_relation_need_no_types(tmp_path: Path, reverse: bool) -> None:
    given = tables(4)
    given["pays"] = given["writes"].assign(a=given["writes"]["a"] % 40, p=given["writes"]["p"] % 40)
    pays = {("person", "pays", "person"): (given["pays"], WRITES)}
    features = ["x0 as feature", "y as label", "split as split"]
    people = given["paper"][given["paper"]["id"] < 40]
    vertices = {"person": (people, ["id", *features])}
    dataset = gnnloom.ingest(
        "people", relations=pays, vertices=vertices, merge="keep", workers=0, catalog=tmp_path / "catalog"
    )
    options = {**SAMPLED, "of_type": "person", "reverse": reverse}
    batches, whole = list(load(dataset, **options)), dataset.to_pyg()["person", "pays", "person"]
    assert batches
    for batch in batches:
        if reverse:
            assert len(batch.edge_types) == 2
            continue
        ends = torch.stack([batch.n_id[batch.edge_index[end]] for end in (0, 1)])
        assert torch.equal(ends, whole.edge_index[:, batch.e_id])
        for name in ("edge_attr", "time", "edge_weight", "edge_label"):
            assert torch.equal(batch[name], whole[name][batch.e_id])
        assert len(batch.y) == len(batch.x) == batch.num_nodes
        assert len(batch.input_id) == batch.batch_size


@pytest.mark.parametrize("size", [2, 4])
def test_batches_of_all_ranks_are_those_of_one(stored: Dataset, size: int) -> None:
    single = [contents(batch) for batch in load(stored, **SAMPLED, epoch=2)]
    loaders = [load(stored, **SAMPLED, epoch=2, rank=rank, size=size) for rank in range(size)]
    for rank, loader in enumerate(loaders):
        assert [contents(batch) for batch in loader] == single[rank::size]


def test_fan_outs_in_total_are_of_all_relations_together(stored: Dataset) -> None:
    whole, options = whole_graph(stored), {**SAMPLED, "fanout": (3,), "fanout_total": True}
    degree = torch.zeros(whole["paper"].num_nodes, dtype=torch.int64)
    for edge_type in whole.edge_types:
        if edge_type[2] == "paper":
            degree += torch.bincount(whole[edge_type].edge_index[1], minlength=len(degree))
    for batch in load(stored, **options):
        seeds = batch["paper"].n_id[: batch["paper"].batch_size]
        drawn = torch.zeros(len(seeds), dtype=torch.int64)
        for edge_type in batch.edge_types:
            if edge_type[2] == "paper":
                drawn += torch.bincount(batch[edge_type].edge_index[1], minlength=len(drawn))
        assert drawn.tolist() == degree[seeds].clamp(max=3).tolist()


def test_batches_depend_on_arguments_alone(stored: Dataset) -> None:
    loader = load(stored, **SAMPLED, workers=2)
    first, second = [[contents(batch) for batch in loader] for _ in range(2)]
    assert first != second
    assert [contents(batch) for batch in load(stored, **SAMPLED, workers=0)] == first
    assert contents(loader.batch(2, epoch=1)) == second[2]
    assert contents(copy.copy(loader).batch(0, 0)) == first[0]
    others = [load(stored, **{**SAMPLED, "seed": 6}), load(stored, **{**SAMPLED, "replace": True})]
    assert all([contents(batch) for batch in other] != first for other in others)
    # Seeds keep their order without shuffling; vertices may be given.
    plain = load(stored, **{**SAMPLED, "shuffle": False, "split": "all"})
    assert torch.cat([each["paper"].n_id[: each["paper"].batch_size] for each in plain]).tolist() == list(range(60))
    given = load(stored, fanout=2, of_type="author", vertices=[4, 9, 30], labels=False, batch_size=9)
    (batch,) = given
    assert batch["author"].n_id[:3].tolist() == [4, 9, 30]


@pytest.mark.slow
def test_workers_of_torch_give_the_same_batches(stored: Dataset) -> None:
    loader = load(stored, **SAMPLED)
    alone = [contents(batch) for batch in load(stored, **SAMPLED)]
    assert [contents(batch) for batch in DataLoader(loader, batch_size=None, num_workers=2)] == alone


def test_the_only_type_with_labels_has_the_examples(stored: Dataset) -> None:
    options = {name: value for name, value in SAMPLED.items() if name != "of_type"}
    found = [contents(batch) for batch in load(stored, **options)]
    assert found == [contents(batch) for batch in load(stored, **SAMPLED)]
    for name in ("author", "venue"):
        with pytest.raises(InputError, match=r"labels=False"):
            load(stored, **{**SAMPLED, "of_type": name, "split": "all"})
    without = load(stored, **{**SAMPLED, "features": "none", "labels": False})
    batch = next(iter(without))
    assert not any(name in batch[key] for key in batch.node_types for name in ("x", "y"))
    assert "edge_attr" not in batch["author", "writes", "paper"]
    assert "time" in batch["author", "writes", "paper"]


def test_what_does_not_go_together_is_refused(stored: Dataset) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"fanout": {"writes": 2}}, "relation about; give 0"),
        ({"fanout": {"write": 2}}, "no relation 'write'; .*writes"),
        ({"fanout": {**dict.fromkeys(["writes", "cites", "about", "knows"], (2, 2)), "near": (2,)}}, "1 and 2 hops"),
        ({"fanout": dict.fromkeys(["writes", "cites", "about", "knows", "near"], -3)}, "fanout"),
        ({"fanout": (3, 0)}, "fanout"),
        ({"fanout": {"writes": 2}, "fanout_total": True}, "fanout_total"),
        ({"of_type": "papers"}, "paper"),
        ({"normalization": "symmetric"}, "normalization"),
        ({"links": True}, "no links"),
        ({"sampler": "vertex"}, "subgraphs"),
        ({"vertices": [60]}, "0 to 59"),
        ({"vertex_data": "0123"}, "mapping"),
        ({"split": "train", "of_type": "author", "labels": False}, "split"),
    ]
    for options, message in cases:
        with pytest.raises((InputError, NotFoundError), match=message):
            load(stored, **{**SAMPLED, **options})
    plain = gnnloom.generate("plain", "sbm", vertices=50, edges=200, workers=0, catalog=stored.path.parent)
    with pytest.raises(GnnloomError, match=r"of_type 'paper': .*no types"):
        load(plain, of_type="paper")
    with pytest.raises(GnnloomError, match=r"vertex_data: .*one key"):
        load(plain, vertex_data={"paper": "0"})


def test_a_copy_of_the_relations_is_verified(tmp_path: Path) -> None:
    dataset = store(tmp_path / "catalog", "papers", tables(1))
    next(iter(load(dataset, **SAMPLED)))
    assert all(not finding.problem for finding in dataset.verify())
    (folder,) = (dataset.path / ".mapped").glob("graph-*")
    file = folder / "writes.time.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(GnnloomError, match=r"writes\.time"):
        check_copy(folder)
    assert Catalog(tmp_path / "catalog")["papers"].typed_graph().relation("near").nnz == 0


@pytest.mark.parametrize(
    "fanout", [(3, 2), (-1, -1), {"writes": (2, 4), "cites": 1, "about": 0, "knows": -1, "near": 2}]
)
@pytest.mark.parametrize(("reverse", "total"), [(False, False), (True, False), (True, True)])
def test_the_expected_size_of_a_batch_is_the_size_of_batches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fanout: Any, reverse: bool, total: bool
) -> None:
    """Of a graph whose ends are uniform, as the expectation has it."""
    dataset = store(tmp_path / "catalog", "papers", tables())
    if reverse and isinstance(fanout, dict):
        fanout = {**fanout, **{f"rev_{name}": 1 for name in fanout}}
    options = {**SAMPLED, "fanout": fanout, "batch_size": 10, "split": "all", "labels": False, "reverse": reverse}
    if total and not isinstance(fanout, dict):
        options["fanout_total"] = True
    loader = load(dataset, **options)
    with caplog.at_level("INFO", "gnnloom.loader"):
        batches = [batch for _ in range(4) for batch in loader]
    (said,) = [record.getMessage() for record in caplog.records if record.name == "gnnloom.loader"]
    assert said == f"expected in a batch: {loader.expected}"
    expected = loader.expected
    assert expected is not None
    for name, wanted in expected.vertices.items():
        mean = np.mean([batch[name].num_nodes for batch in batches])
        assert abs(mean - wanted) <= 0.15 * wanted + 1, name
    for edge_type in batches[0].edge_types:
        mean, wanted = (
            np.mean([batch[edge_type].edge_index.shape[1] for batch in batches]),
            expected.edges[edge_type[1]],
        )
        assert abs(mean - wanted) <= 0.25 * wanted + 1, edge_type
