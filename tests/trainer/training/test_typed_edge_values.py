"""Labels and weights of the edges of a relation: steps and figures equal those of the module on the whole graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import gnnloom
from gnnloom.storage import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.lone import LoneCommunicator
from support.lone_training import lone_session
from support.mpi import run_program
from support.tolerance import assert_close
from support.typed_models import load
from support.typed_pairs import of_pairs, vectors, without
from support.typed_papers import store, tables, whole_graph
from support.typed_runs import OWN, typed_config, with_topics

#: They share training runs on several ranks, and need PyG.
pytestmark = pytest.mark.slow

LR = 0.25
EVERY: dict[str, Any] = {"fanout": (ALL, ALL), "epochs": 1, "optimizer": "sgd", "lr": LR, "reverse": True}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    pytest.importorskip("torch_geometric.nn")
    found: Dataset = with_topics(store(tmp_path_factory.mktemp("values") / "catalog", "papers", tables()))
    return found


@pytest.fixture(scope="module")
def valued(dataset: Dataset) -> dict[str, str]:
    """Keys of links with values, by task."""
    tasks = {"edge-class": ("writes", "class"), "edge-number": ("cites", "number")}
    found = {}
    for task, (relation, values) in tasks.items():
        links = gnnloom.draw_links(dataset, relation=relation, values=values, valid=0.15, test=0.15, workers=0)
        # Stores the reverses.
        next(iter(load(dataset, links=links, fanout=1, batch_size=4, reverse=True)))
        found[task] = links.artifact.key
    return found


@pytest.fixture(scope="module")
def value_runs(
    dataset: Dataset, valued: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[TrainConfig, dict[str, Any]]]:
    """Configurations and results of a step on all pairs with values, on one and two ranks, by run."""
    configs = []
    for task, key in valued.items():
        links = dataset.links(key)
        for n in (1, 2):
            steps: dict[str, Any] = {"task": task, "links": key, "link_batch": -(-links.num_pairs["train"] // n)}
            relation: Any = links.relation
            how = {**EVERY, **steps, "relation": relation.name, "ranks": n}
            configs.append(typed_config(dataset, f"{task}-{n}", **how))
    catalog: dict[str, Any] = {"catalog": str(dataset.path.parent), "dataset": dataset.name, "model": f"{OWN}:Sage"}
    vectors_of = PredictConfig.of(**catalog, run="edge-class-1", ranks=2)
    content = [each.to_json() for each in [*configs, vectors_of]]
    found = run_program(2, "train_all", tmp_path_factory.mktemp("values"), content, timeout=400)
    return {str(each.run.name): (each, own) for each, own in zip(configs, found, strict=False)}


def loss_of(scores: Tensor, value: Tensor) -> Tensor:
    """Cross-entropy of classes, or mean squared error of numbers."""
    if value.dtype == torch.int64:
        return functional.cross_entropy(scores, value)
    return functional.mse_loss(scores.reshape(len(value)), value.double())


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("task", ["edge-class", "edge-number"])
def test_values_of_edges_are_learned_and_measured_as_on_the_whole_graph(
    dataset: Dataset, value_runs: Any, valued: dict[str, str], task: str, ranks: int
) -> None:
    (config, result), links = value_runs[f"{task}-{ranks}"], dataset.links(valued[task])
    (source, relation, target), run = links.relation.edge_type, str(config.run.name)  # type: ignore[union-attr]
    model: Any = lone_session(config).model
    data = without(
        whole_graph(dataset, reverse=True), relation, np.concatenate([links.edge("valid"), links.edge("test")])
    )

    def scores_on(graph: Any, pairs: Tensor) -> Tensor:
        found = vectors(model.module, graph)
        scores: Tensor = model.decoder(found[source][pairs[0]], found[target][pairs[1]])
        return scores

    scores, values = [], []
    given: dict[str, Any] = {"reverse": True, "seed": config.run.seed, "fanout": 1, "negatives": 0}
    for batch in load(dataset, links=links, batch_size=config.task.link_batch, **given):
        ends = batch[source, relation, target].edge_label_index
        pairs = torch.stack([batch[name].n_id[each] for name, each in zip((source, target), ends, strict=True)])
        scores.append(scores_on(without(data, relation, of_pairs(data, relation, pairs)), pairs))
        values.append(batch[source, relation, target].edge_label)
    assert len(scores) == ranks
    loss = loss_of(torch.cat(scores), torch.cat(values))
    loss.backward()  # type: ignore[no-untyped-call]
    assert_close(result["loss"], [loss.item()], steps=4)
    after = read_checkpoint(Run.open(dataset, run).checkpoints).arrays
    for name, each in model.named_parameters():
        stepped = torch.tensor(after[f"parameter/{name}"])
        expected = torch.zeros_like(each) if each.grad is None else each.grad
        assert_close((each.detach() - stepped) / LR, expected, steps=20, message=name)
        each.data = stepped
    test = torch.from_numpy(links.pair("test").T.copy())
    with torch.no_grad():
        found, value = scores_on(data, test), torch.from_numpy(links.value("test"))
    if task == "edge-class":
        assert result["test_accuracy"] == pytest.approx((found.argmax(1) == value).double().mean().item(), abs=1e-12)
    else:
        assert result["test_rmse"] == pytest.approx(loss_of(found, value).sqrt().item(), rel=1e-9)


def test_classes_of_pairs_have_the_words_of_the_labels(dataset: Any, value_runs: Any, valued: dict[str, str]) -> None:
    assert "edge-class-1" in value_runs
    pairs = dataset.links(valued["edge-class"]).pair("test")
    found = dataset.run("edge-class-1").score_frame(pairs)
    words = np.array(dataset.typed_graph().relation("writes").classes)
    assert found["class_name"].tolist() == words[found["class"]].tolist()


@pytest.mark.parametrize("task", ["edge-class", "edge-number"])
def test_a_step_on_pairs_with_values_from_files_is_that_on_the_same_drawn_pairs(
    dataset: Dataset, valued: dict[str, str], value_runs: Any, tmp_path: Path, task: str
) -> None:
    links, graph = dataset.links(valued[task]), dataset.typed_graph()
    assert links.relation is not None
    types = (links.relation.source, links.relation.target)
    for split in ("train", "valid", "test"):
        pairs, values = links.pair(split), links.value(split)
        ids = (graph.original_id(name)[pairs[:, end]] for end, name in enumerate(types))
        table = pd.DataFrame(dict(zip(("from", "to", "value"), (*ids, values), strict=True)))
        table.to_csv(tmp_path / f"{split}.csv", index=False)
    how: dict[str, Any] = {split: tmp_path / f"{split}.csv" for split in ("train", "valid", "test")}
    how |= {"relation": links.relation.name, "values": links.kind, "allow_overlap": True, "workers": 0}
    given = gnnloom.read_links(dataset, **how)
    # Stores the reverses.
    next(iter(load(dataset, links=given, fanout=1, batch_size=4, reverse=True)))
    config, expected = value_runs[f"{task}-1"]
    steps: dict[str, Any] = {"task": task, "links": given.artifact.key, "link_batch": config.task.link_batch}
    found = train(
        LoneCommunicator(), typed_config(dataset, f"given-{task}", relation=links.relation.name, **EVERY, **steps)
    )
    assert found["loss"] == expected["loss"]
    figure = "test_accuracy" if task == "edge-class" else "test_rmse"
    assert found[figure] == expected[figure]


@pytest.mark.parametrize(
    ("task", "given", "named"),
    [
        ("edge-number", "edge-class", "classes.*--relation writes --values number"),
        ("link", None, "several of relation"),
    ],
)
def test_links_with_other_values_are_refused_with_the_command_that_makes_them(
    dataset: Dataset, valued: dict[str, str], task: str, given: str | None, named: str
) -> None:
    if task == "link":
        gnnloom.draw_links(dataset, relation="writes", workers=0)
    links = None if given is None else valued[given]
    config: dict[str, Any] = {"relation": "writes", "task": task, "links": links}
    with pytest.raises((InputError, CollectiveError), match=named):
        train(LoneCommunicator(), typed_config(dataset, "refused", **config))
