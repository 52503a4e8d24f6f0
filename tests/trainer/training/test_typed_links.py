"""Pairs of a relation between types: steps, vectors and figures equal the figures of the module on the whole graph."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

import gnnloom
from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.best_targets import read_targets
from gnnloom.trainer.training.loop import train
from support.lone import LoneCommunicator
from support.lone_training import lone_session
from support.mpi import run_program
from support.tolerance import ADAM_BITS, assert_close
from support.typed_models import load
from support.typed_pairs import RELATIONS, of_pairs, vectors, without
from support.typed_papers import COUNTS, store, tables, whole_graph
from support.typed_runs import OWN, RANKS, stored_state, typed_config, with_topics

#: They share training runs on several ranks, and need PyG.
pytestmark = pytest.mark.slow

LR = 0.25
EVERY: dict[str, Any] = {"fanout": (ALL, ALL), "epochs": 1, "optimizer": "sgd", "lr": LR, "reverse": True}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    pytest.importorskip("torch_geometric.nn")
    found: Dataset = with_topics(store(tmp_path_factory.mktemp("links") / "catalog", "papers", tables()))
    for relation in RELATIONS:
        gnnloom.draw_links(found, relation=relation, valid=0.15, test=0.15, negatives=3, workers=0)
        next(iter(load(found, links=links_of(found, relation), fanout=1, batch_size=4, reverse=True)))
    return found


def links_of(dataset: Any, relation: str) -> Links:
    every = [dataset.links(info.key) for info in dataset.artifacts("links")]
    (found,) = (each for each in every if each.relation.name == relation)
    return found  # type: ignore[no-any-return]


def message_graph(dataset: Dataset, relation: str) -> Any:
    links = links_of(dataset, relation)
    held_out = np.concatenate([links.edge(split) for split in ("valid", "test")])
    return without(whole_graph(dataset, reverse=True), relation, held_out)


def batches(dataset: Dataset, config: TrainConfig) -> list[tuple[Tensor, Tensor]]:
    """The pairs of the batches of the first epoch, and their negatives, by the loader: (2, num_pairs) vertices each."""
    found, (source, target) = [], RELATIONS[str(config.mode.relation)]
    given = {
        "links": links_of(dataset, str(config.mode.relation)),
        "reverse": True,
        "seed": config.run.seed,
        "fanout": 1,
    }
    for batch in load(dataset, **given, negatives=config.task.negatives, batch_size=config.task.link_batch or 1024):
        pairs = batch[source, config.mode.relation, target]
        ends = torch.stack(
            [batch[name].n_id[each] for name, each in zip((source, target), pairs.edge_label_index, strict=True)]
        )
        found.append((ends[:, pairs.edge_label == 1], ends[:, pairs.edge_label == 0]))
    return found


def expected_loss(module: nn.Module, dataset: Dataset, config: TrainConfig) -> Tensor:
    """The loss of one step on all batches, each of them on the graph without its own pairs."""
    relation, data, terms = str(config.mode.relation), message_graph(dataset, str(config.mode.relation)), []
    source, target = RELATIONS[relation]
    for pairs, negatives in batches(dataset, config):
        excluded = of_pairs(data, relation, pairs) if config.task.exclude_targets else np.empty(0, np.int64)
        found = vectors(module, without(data, relation, excluded))
        for sign, (sources, targets) in ((-1, pairs), (1, negatives)):
            terms.append(functional.softplus(sign * (found[source][sources] * found[target][targets]).sum(1)))
    return torch.cat(terms).mean()


def gradients_of_a_step(dataset: Dataset, config: TrainConfig) -> dict[str, Tensor]:
    before: Any = lone_session(config).model.module
    after = stored_state(dataset, str(config.run.name))
    return {name: (each.detach() - after[name]) / LR for name, each in before.named_parameters()}


class Results:
    """Runs of one MPI job, by name."""

    def __init__(self, dataset: Dataset, folder: Path) -> None:
        drops: dict[str, Any] = {"fanout": (3, 2), "link_batch": 20, "dropout": 0.3, "checkpoint_every": 1, "epochs": 4}
        some: dict[str, Any] = {"fanout": (3, 2), "link_batch": 12, "lr": 0.0, "epochs": 2, "reverse": True}
        vary: dict[str, Any] = {
            "negative_sampler": "degree",
            "strict_negatives": True,
            "filtered_ranks": True,
            "negatives": 3,
        }
        self.configs: dict[str, TrainConfig] = {}
        for relation in RELATIONS:
            count = links_of(dataset, relation).num_pairs["train"]
            for n in RANKS:
                steps: dict[str, Any] = {"link_batch": -(-count // n), "negatives": 2, "filtered_ranks": True}
                self._add(dataset, f"step-{relation}-{n}", relation, **EVERY, **steps, ranks=n)
                self._add(dataset, f"some-{relation}-{n}", relation, **some, **vary, ranks=n, eval_every=1)
        for n in RANKS:
            # Fewer batches than ranks.
            self._add(dataset, f"few-writes-{n}", "writes", name="Normalized", ranks=n, fanout=(ALL, ALL))
        self._add(dataset, "mlp-2", "writes", **EVERY, decoder="mlp", link_batch=77, ranks=2)
        self._add(dataset, "straight", "writes", **drops, ranks=2)
        configs = [*self.configs.values()]
        resumed = [
            typed_config(dataset, "resumed", relation="writes", **{**drops, "epochs": n}, ranks=2) for n in (2, 4)
        ]
        catalog: dict[str, Any] = {"catalog": str(dataset.path.parent), "dataset": dataset.name, "model": f"{OWN}:Sage"}
        self.targets = {relation: folder / relation for relation in RELATIONS}
        predictions = [
            PredictConfig.of(**catalog, run=f"step-{relation}-1", ranks=4, top=3, targets=str(found))
            for relation, found in self.targets.items()
        ]
        for each in self.targets.values():
            each.mkdir()
        content = [each.to_json() for each in [*configs, *resumed, *predictions]]
        found = run_program(max(RANKS), "train_all", folder, content, timeout=400)
        self.by_run = dict(zip([each.run.name for each in [*configs, *resumed]], found, strict=False))

    def _add(self, dataset: Dataset, run: str, relation: str, name: str = "Sage", **options: Any) -> None:
        self.configs[run] = typed_config(dataset, run, name, relation=relation, **options)


@pytest.fixture(scope="module")
def results(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(dataset, tmp_path_factory.mktemp("results"))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("ranks", RANKS)
def test_with_all_neighbors_a_step_is_one_on_the_whole_graph_without_the_pairs_of_each_batch(
    dataset: Dataset, results: Results, relation: str, ranks: int
) -> None:
    run = f"step-{relation}-{ranks}"
    module: Any = copy.deepcopy(lone_session(results.configs[run]).model.module)
    loss = expected_loss(module, dataset, results.configs[run])
    loss.backward()  # type: ignore[no-untyped-call]
    assert_close(results.by_run[run]["loss"], [loss.item()], steps=4)
    formed = 0
    for name, gradient in gradients_of_a_step(dataset, results.configs[run]).items():
        expected = next(each.grad for other, each in module.named_parameters() if other == name)
        formed += expected is not None and float(expected.abs().max()) > 1e-3
        assert_close(gradient, torch.zeros_like(gradient) if expected is None else expected, steps=20, message=name)
    assert formed > 4


def test_edges_of_the_pairs_stay_if_they_are_asked_to(dataset: Dataset) -> None:
    config = typed_config(dataset, "stay", "Attention", relation="writes", **EVERY, exclude_targets=False)
    module: Any = copy.deepcopy(lone_session(config).model.module)
    loss = train(LoneCommunicator(), config)["loss"]
    assert_close(loss, [expected_loss(module, dataset, config).item()], steps=4)


@pytest.mark.parametrize("relation", RELATIONS)
def test_vectors_and_figures_are_those_of_the_module_without_held_out_edges(
    dataset: Dataset, results: Results, relation: str
) -> None:
    run, links, (source, target) = f"step-{relation}-1", links_of(dataset, relation), RELATIONS[relation]
    module: Any = lone_session(results.configs[run]).model.module
    module.load_state_dict(stored_state(dataset, run))
    with torch.no_grad():
        found = vectors(module.eval(), message_graph(dataset, relation))
    expected = torch.cat([found[name] for name in dict.fromkeys((source, target))])
    assert_close(Run.open(dataset, run).predictions().array("vector").read(), expected, steps=20)

    def scores(pairs: NDArray[np.int64]) -> NDArray[Any]:
        return (found[source][pairs[:, 0]] * found[target][pairs[:, 1]]).sum(1).numpy()

    for prefix, split in (("val", "valid"), ("test", "test")):
        above = scores(links.pair(split))[:, None] - scores(links.pool(split))
        assert results.by_run[run][f"{prefix}_auc"] == pytest.approx(((above > 0) + (above == 0) / 2).mean(), abs=1e-9)
    # The filtered setting: all vertices of the target type but known targets.
    pairs, every = links.pair("test"), np.concatenate([links.pair(split) for split in ("train", "valid", "test")])
    if source == target:
        every = np.concatenate([every, every[:, ::-1]])
    ranks = []
    # Four ranks, each of which has vectors of some sources and of some targets.
    best, _ = read_targets(results.targets[relation], 3, np.dtype(np.float64))
    assert len(best) == COUNTS[source]
    for own, each in zip(scores(pairs), pairs, strict=True):
        others = np.setdiff1d(np.arange(COUNTS[target]), every[every[:, 0] == each[0], 1])
        others = others[others != each[0]] if source == target else others
        higher = scores(np.stack([np.full_like(others, each[0]), others], 1))
        assert best[each[0]].tolist() == others[np.argsort(-higher)[:3]].tolist()
        ranks.append(1 + ((higher > own).sum() + (higher >= own).sum()) / 2)
    filtered = results.by_run[run]["filtered"]
    assert filtered["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)), abs=1e-9)
    assert filtered["hits_10"] == pytest.approx(np.mean(np.array(ranks) <= 10), abs=1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("ranks", RANKS[1:])
def test_losses_and_figures_do_not_depend_on_the_number_of_ranks(results: Results, relation: str, ranks: int) -> None:
    for kind in ("some", "few") if relation == "writes" else ("some",):
        one, several = (results.by_run[f"{kind}-{relation}-{number}"] for number in (1, ranks))
        # The batches and their negatives are the same, whichever rank makes them.
        assert_close(several["loss"], one["loss"], steps=20, bits=ADAM_BITS)
        for figure in ("val_auc", "test_auc", "test_ap", "test_hits_20"):
            assert several[figure] == pytest.approx(one[figure], abs=1e-9)
        if kind == "some":
            assert several["filtered"] == pytest.approx(one["filtered"], abs=1e-9)


def test_a_decoder_with_parameters_trains_and_a_run_goes_on(results: Results) -> None:
    assert np.isfinite(results.by_run["mlp-2"]["loss"]).all()
    losses = results.by_run["straight"]["loss"]
    assert len(losses) == 4
    assert results.by_run["resumed"]["loss"] == losses
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"relation": "wrote"}, r"wrote.*did you mean writes\?.*--relation wrote"),
        ({"of_type": "paper"}, "of_type"),
        ({"task": "auto", "output_dim": 64}, r"relation.*--task link or edge-class or edge-number"),
        ({"task": "edge-class"}, "no values.*--relation writes --values class"),
        ({"model": "sage"}, "relation"),
        ({"model": f"{OWN}:WithoutTypes"}, "relation"),
        ({"links": "0123"}, "0123"),
        ({"model": f"{OWN}:Converted"}, "mapping"),
        ({"mode": "full"}, "relation: mode full has no such option"),
        ({"embed": 4}, "embed"),
    ],
)
def test_what_does_not_fit_pairs_of_a_relation_is_refused(
    dataset: Dataset, options: dict[str, Any], named: str
) -> None:
    with pytest.raises((InputError, NotFoundError, CollectiveError), match=named):
        train(LoneCommunicator(), typed_config(dataset, "refused", **{"relation": "writes", **options}))
    with pytest.raises(InputError, match="--relation NAME"):
        typed_config(dataset, "refused", of_type=None, task="link")
