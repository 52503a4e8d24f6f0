"""Batches of pairs of one relation: with all neighbors, models of PyG see the graph without held-out and own edges."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.upkeep.lineage import lineage
from support.covering import few_of
from support.in_process import run_command
from support.tolerance import assert_close
from support.typed_models import TypedModel, attention, contents, load, sage
from support.typed_papers import store, tables, whole_graph

_SAMPLED: dict[str, Any] = {"fanout": (3, 2), "batch_size": 16, "seed": 5, "reverse": True, "negatives": 2}
_ENDS = {"writes": ("author", "paper"), "knows": ("author", "author"), "cites": ("paper", "paper")}


@pytest.fixture(autouse=True, scope="module")
def _pyg() -> None:
    # Not while tests are collected, which every process does: it takes seconds.
    pytest.importorskip("torch_geometric.nn")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Links]]:
    """Links of relations between two types and within one, with parallel edges, reciprocal edges and columns."""
    given = tables()
    knows = given["knows"].rename(columns={"a": "b", "b": "a"}).iloc[::2]
    given["knows"] = pd.concat([given["knows"], knows], ignore_index=True)
    dataset = store(tmp_path_factory.mktemp("typed") / "catalog", "papers", given)
    return dataset, {name: gnnloom.draw_links(dataset, relation=name, valid=0.1, test=0.2, workers=0) for name in _ENDS}


def _held_out(links: Links) -> NDArray[np.int64]:
    return np.concatenate([links.edge("valid"), links.edge("test")])


def _without(whole: Any, name: str, keep: Tensor) -> Any:
    """The whole graph with some edges of a relation, and with reverses of all relations."""
    found = copy.copy(whole)
    for source, each, target in list(whole.edge_types):
        for key, value in whole[source, each, target].items():
            kept = value if each != name else value[:, keep] if key == "edge_index" else value[keep]
            found[source, each, target][key] = kept
            found[target, f"rev_{each}", source][key] = kept.flip(0) if key == "edge_index" else kept
    return found


def _is_own(whole: Any, edge_type: Any, pairs: Tensor, *, together: bool) -> Tensor:
    """Which edges are in the place of a pair, in either direction if an edge and its reverse are together."""
    ends = whole[edge_type].edge_index
    size = int(max(ends.max(), pairs.max())) + 1
    own = pairs[0] * size + pairs[1]
    own = torch.cat([own, pairs[1] * size + pairs[0]]) if together else own
    return torch.isin(ends[0] * size + ends[1], own)


@pytest.mark.slow
@pytest.mark.parametrize(("layer", "has_attributes"), [(sage, False), (attention, True)])
@pytest.mark.parametrize("name", ["writes", "knows"])
def test_with_all_neighbors_models_of_pyg_see_the_graph_without_the_edges_of_a_batch(
    stored: tuple[Any, dict[str, Links]], layer: Callable[[Any], nn.Module], has_attributes: bool, name: str
) -> None:
    dataset, links = stored[0], stored[1][name]
    source, target = _ENDS[name]
    edge_type = source, name, target
    whole, held_out = whole_graph(dataset), torch.from_numpy(_held_out(links))
    keep = torch.ones(whole[edge_type].edge_index.shape[1], dtype=torch.bool)
    keep[held_out] = False
    torch.manual_seed(3)
    everything = _without(whole, name, keep)
    model = TypedModel(everything, layer, has_attributes=has_attributes).double()
    with torch.no_grad():
        model(everything, lambda each: torch.arange(whole[each].num_nodes))
    seen, steps = [], 0
    for batch in load(dataset, links=links, **{**_SAMPLED, "fanout": (-1, -1), "features": "float64"}):
        own = batch[edge_type]
        ends = torch.stack([batch[end].n_id[own.edge_label_index[at]] for at, end in enumerate((source, target))])
        pairs, label = ends[:, : own.batch_size], own.edge_label.double()
        seen += own.input_id.tolist()
        assert torch.equal(pairs.T, torch.from_numpy(links.pair("train")[own.input_id.numpy()]))
        assert own.edge_label.tolist() == [1.0] * own.batch_size + [0.0] * 2 * own.batch_size
        reduced = _without(whole, name, keep & ~_is_own(whole, edge_type, pairs, together=links.together))
        results = []
        for data, index, numbers in (
            (reduced, ends, lambda each: torch.arange(whole[each].num_nodes)),
            (batch, own.edge_label_index, lambda each, drawn=batch: drawn[each].n_id),
        ):
            model.zero_grad()
            x = model(data, numbers)
            score = (x[source][index[0]] * x[target][index[1]]).sum(1)
            loss: Any = nn.functional.binary_cross_entropy_with_logits(score, label)
            loss.backward()
            gradients = {key: each.grad.clone() for key, each in model.named_parameters() if each.grad is not None}
            results.append((score.detach().numpy(), gradients))
        assert_close(results[1][0], results[0][0])
        assert results[0][1].keys() == results[1][1].keys()
        for key, wanted in results[0][1].items():
            np.testing.assert_allclose(results[1][1][key], wanted, rtol=1e-9, atol=1e-9, err_msg=key)
        steps += 1
    assert steps > 2
    assert sorted(seen) == list(range(links.num_pairs["train"]))


@pytest.mark.parametrize(("name", "split"), few_of(list(_ENDS), ["train", "valid", "test"], together=1))
def test_batches_of_pairs_have_parts_of_the_message_graph(
    stored: tuple[Any, dict[str, Links]], name: str, split: str
) -> None:
    dataset, links = stored[0], stored[1][name]
    source, target = _ENDS[name]
    edge_type, whole, held_out = (source, name, target), dataset.to_pyg(), _held_out(links)
    is_edge = {tuple(pair) for pair in whole[edge_type].edge_index.T.tolist()}
    trains = split == "train"
    asked = _SAMPLED if trains else {key: value for key, value in _SAMPLED.items() if key != "negatives"}
    pools = []
    for batch in load(dataset, links=links, split=split, **asked):
        own = batch[edge_type]
        ends = torch.stack([batch[end].n_id[own.edge_label_index[at]] for at, end in enumerate((source, target))])
        pairs, compared = ends[:, : own.batch_size], ends[:, own.batch_size :]
        assert torch.equal(pairs.T, torch.from_numpy(links.pair(split)[own.input_id.numpy()]))
        # Seeds lead the vertices of their types, and there are no others.
        both = {source: ends[0], target: ends[1]} if source != target else {source: ends.ravel()}
        for each, seeds in both.items():
            first = batch[each].n_id[: batch[each].num_sampled_nodes[0]]
            assert first.tolist() == sorted(set(seeds.tolist()))
        assert all(batch[each].num_sampled_nodes[0] == 0 for each in batch.node_types if each not in both)
        for drawn, flip in ((batch[edge_type], False), (batch[target, f"rev_{name}", source], True)):
            assert not np.isin(drawn.e_id, held_out).any()
            assert len(drawn.e_id) == len(drawn.e_id.unique())
            index = drawn.edge_index.flip(0) if flip else drawn.edge_index
            found = torch.stack([batch[end].n_id[index[at]] for at, end in enumerate((source, target))])
            assert torch.equal(found, whole[edge_type].edge_index[:, drawn.e_id])
            assert not (trains and _is_own_of(found, pairs, together=links.together).any())
            for column in {"edge_attr", "edge_weight", "time"} & set(whole[edge_type].keys()):
                assert torch.equal(drawn[column], whole[edge_type][column][drawn.e_id])
        if trains:
            assert torch.equal(compared[0], pairs[0].repeat_interleave(2))
            assert compared[1].max() < whole[target].num_nodes
        else:
            pools += compared.T.tolist()
            assert not {tuple(pair) for pair in compared.T.tolist()} & is_edge
    if not trains:
        assert pools == links.pool(split).tolist()


def _is_own_of(ends: Tensor, pairs: Tensor, *, together: bool) -> NDArray[np.bool_]:
    own = {tuple(pair) for pair in pairs.T.tolist()}
    own |= {(target, source) for source, target in own} if together else set()
    return np.array([tuple(each) in own for each in ends.T.tolist()], bool)


@pytest.mark.parametrize(
    ("sampler", "name"), few_of(["uniform", "degree", "joint", "pairs"], ["writes", "knows"], together=1)
)
def test_strict_negatives_are_no_edges_and_of_the_types_of_their_ends(
    stored: tuple[Any, dict[str, Links]], name: str, sampler: str
) -> None:
    dataset, links = stored[0], stored[1][name]
    source, target = _ENDS[name]
    ends = dataset.to_pyg(graph=links.message_graph)[source, name, target].edge_index
    is_edge = {tuple(pair) for pair in ends.T.tolist()}
    if links.together:
        is_edge |= {(second, first) for first, second in is_edge}
    how = {**_SAMPLED, "negatives": 3, "negative_sampler": sampler, "strict_negatives": True}
    drawn = []
    for batch in load(dataset, links=links, **how):
        own = batch[source, name, target]
        index = own.edge_label_index[:, own.batch_size :]
        drawn += torch.stack([batch[end].n_id[index[at]] for at, end in enumerate((source, target))]).T.tolist()
    # A few stay if all 16 draws of a negative were edges.
    assert len({tuple(pair) for pair in drawn} & is_edge) < 3
    counts = [len({pair[end] for pair in drawn}) for end in (0, 1)]
    assert counts[1] > (30 if sampler != "joint" else 10)
    if name == "writes":
        # Numbers of two types may be equal, and all papers may be drawn, not only as many as there are authors.
        assert any(first == second for first, second in drawn)
        assert sampler == "joint" or max(pair[1] for pair in drawn) >= 50
    else:
        assert all(first != second for first, second in drawn) or sampler in {"joint", "degree"}


def test_batches_of_pairs_depend_on_arguments_alone(stored: tuple[Any, dict[str, Links]]) -> None:
    dataset, links = stored[0], stored[1]["writes"]
    options = {**_SAMPLED, "links": links.artifact.key}
    loader = load(dataset, **options, workers=2)
    first, second = [[contents(batch) for batch in loader] for _ in range(2)]
    assert first != second
    assert [contents(batch) for batch in load(dataset, **options, workers=0)] == first
    assert contents(copy.copy(loader).batch(1, 1)) == second[1]
    parts = [load(dataset, **options, rank=rank, size=2) for rank in range(2)]
    assert [contents(batch) for batch in parts[1]] == first[1::2]


def test_one_relation_within_one_type_gives_data(tmp_path: Path) -> None:
    frame = tables()["knows"]
    dataset = gnnloom.ingest(
        "people", relations={("person", "knows", "person"): (frame, ["a", "b"])}, merge="keep", workers=0,
        catalog=tmp_path / "catalog",
    )  # fmt: skip
    links = gnnloom.draw_links(dataset, relation="knows", workers=0)
    for batch in load(dataset, links=True, fanout=(3,), batch_size=16):
        pairs = batch.n_id[batch.edge_label_index[:, : batch.batch_size]]
        assert torch.equal(pairs.T, torch.from_numpy(links.pair("train")[batch.input_id.numpy()]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"of_type": "paper"}, "of_type"),
        ({"split": "all"}, "split all"),
        ({"normalization": "mean"}, "normalization"),
        ({"graph": "0123"}, "0123"),
        ({"fanout": {"writes": 1}}, "relation"),
        ({"vertex_data": "abc"}, "vertex_data"),
    ],
)
def test_what_pairs_of_a_relation_cannot_have_is_refused(
    stored: tuple[Any, dict[str, Links]], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        load(stored[0], links=stored[1]["writes"], **options)


def test_links_are_drawn_from_one_relation(stored: tuple[Any, dict[str, Links]], catalog: Catalog) -> None:
    dataset, links = stored
    with pytest.raises(InputError, match="about, cites, knows, near, writes"):
        gnnloom.draw_links(dataset, workers=0)
    with pytest.raises(InputError, match="relation: about, cites"):
        gnnloom.read_links(dataset, valid="pairs.csv", test="pairs.csv", workers=0)
    with pytest.raises(InputError, match="use fewer negatives"):
        gnnloom.draw_hard_negatives(dataset, links=links["writes"], workers=0)
    with pytest.raises(NotFoundError, match="held-out edges"):
        gnnloom.draw_links(dataset, relation="writes", graph=links["writes"].message_graph, workers=0)
    plain = gnnloom.ingest("plain", np.array([[0, 1], [1, 2], [2, 0]]), catalog=catalog.root, workers=0)
    with pytest.raises(InputError, match=r"relation writes: .*no types"):
        gnnloom.draw_links(plain, relation="writes", workers=0)


@pytest.mark.parametrize("name", ["writes", "cites"])
def test_pairs_are_exported_with_the_ids_and_columns_of_their_table(
    stored: tuple[Any, dict[str, Links]], tmp_path: Path, name: str
) -> None:
    dataset, links = stored[0], stored[1][name]
    frame = gnnloom.export(dataset, "pairs", key=links.artifact.key)
    assert isinstance(frame, pd.DataFrame)
    edges = gnnloom.export(dataset, "edges", relation=name)
    assert isinstance(edges, pd.DataFrame)
    position = np.concatenate([links.edge(split) for split in ("train", "valid", "test")])
    wanted = edges.iloc[position].reset_index(drop=True)
    assert frame["split"].tolist() == [split for split, count in links.num_pairs.items() for _ in range(count)]
    pd.testing.assert_frame_equal(frame.drop(columns="split"), wanted)
    table = tables()[name]
    if name == "writes":
        rows = table.iloc[frame["row"]]
        assert frame["source"].tolist() == rows["a"].tolist()
        assert frame["weight"].tolist() == rows["weight"].tolist()
    # What is left of the relation is the rest of the edges.
    kept = gnnloom.export(dataset, "edges", relation=name, key=links.message_graph, out=tmp_path / "kept.csv")
    held_out = np.concatenate([links.edge("valid"), links.edge("test")])
    rest = edges.drop(index=held_out).reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_csv(str(kept))[["source", "target"]], rest[["source", "target"]])


def test_pairs_of_a_graph_without_types_are_exported_by_name(catalog: Catalog) -> None:
    ends = np.random.default_rng(2).integers(0, 40, (300, 2))
    names = pd.DataFrame({"a": [f"v{each}" for each in ends[:, 0]], "b": [f"v{each}" for each in ends[:, 1]]})
    dataset = gnnloom.ingest("named", names, ids="names", workers=0, catalog=catalog.root)
    links = gnnloom.draw_links(dataset, workers=0, reciprocal="apart")
    frame = gnnloom.export(dataset, "pairs")
    assert isinstance(frame, pd.DataFrame)
    known = {(a, b) for a, b in zip(names["a"], names["b"], strict=True)}
    assert list(frame.columns) == ["source", "target", "split"]
    assert set(zip(frame["source"], frame["target"], strict=True)) <= known
    assert frame["split"].value_counts().to_dict() == dict(links.num_pairs)


def test_links_of_a_relation_are_shown(stored: tuple[Any, dict[str, Links]]) -> None:
    dataset, links = stored[0], stored[1]["writes"]
    key = links.artifact.key
    shown = run_command("--catalog", str(dataset.path.parent), "catalog", "show", dataset.name)
    assert shown.returncode == 0
    counts = [f"{count:,}" for count in links.num_pairs.values()]
    assert [key, "writes", "author", "paper", *counts, links.message_graph] in [
        line.split() for line in shown.stdout.splitlines()
    ]
    assert repr(links).endswith("test pairs of author writes paper)")
    nodes = lineage(dataset)
    assert nodes[f"links/{key}"].inputs == {"graph": f"graph/{links.graph}"}
    assert nodes[f"graph/{links.message_graph}"].inputs == {"graph": f"graph/{links.graph}", "links": f"links/{key}"}
