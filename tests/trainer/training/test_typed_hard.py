"""Figures on hard negatives of a relation equal NumPy's on the vectors of the module, on any number of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnnloom
from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.mpi import run_program
from support.tolerance import ADAM_BITS, assert_close
from support.typed_pairs import RELATIONS
from support.typed_papers import store, tables
from support.typed_runs import OWN, RANKS, typed_config, with_topics

#: They train on several ranks, and need PyG.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    pytest.importorskip("torch_geometric.nn")
    found: Dataset = with_topics(store(tmp_path_factory.mktemp("hard") / "catalog", "papers", tables()))
    for relation in RELATIONS:
        gnnloom.draw_links(found, relation=relation, valid=0.15, test=0.15, negatives=3, workers=0)
    return found


@pytest.fixture(scope="module")
def hard(dataset: Dataset) -> dict[str, Links]:
    return {
        relation: gnnloom.draw_hard_negatives(dataset, relation=relation, negatives=9, workers=0)
        for relation in RELATIONS
    }


@pytest.fixture(scope="module")
def results(
    dataset: Dataset, hard: dict[str, Links], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, int], Any]:
    how: dict[str, Any] = {
        "fanout": (ALL, ALL),
        "epochs": 2,
        "link_batch": 12,
        "lr": 0.0,
        "reverse": True,
        "eval_every": 1,
    }
    configs = {
        (relation, ranks): typed_config(
            dataset, f"{relation}-{ranks}", relation=relation, links=links.artifact.key, ranks=ranks, **how
        )
        for relation, links in hard.items()
        for ranks in RANKS
    }
    catalog: dict[str, Any] = {"catalog": str(dataset.path.parent), "dataset": dataset.name, "model": f"{OWN}:Sage"}
    predictions = [PredictConfig.of(**catalog, run=f"{relation}-1", ranks=2) for relation in hard]
    content = [each.to_json() for each in [*configs.values(), *predictions]]
    found = run_program(max(RANKS), "train_all", tmp_path_factory.mktemp("results"), content, timeout=400)
    return dict(zip(configs, found, strict=False))


@pytest.mark.parametrize("relation", RELATIONS)
def test_ranks_among_hard_negatives_are_those_of_numpy(
    dataset: Dataset, hard: dict[str, Links], results: dict[tuple[str, int], Any], relation: str
) -> None:
    stored = Run.open(dataset, f"{relation}-1").predictions().array("vector").read()
    links = hard[relation]
    source, target = stored[: links.source_vertices], stored[links.first_target :]
    pairs, ranks = links.pair("test"), []
    for number, (own, other) in enumerate(pairs.tolist()):
        score = source[own] @ target[other]
        negatives = np.concatenate(
            [
                target[links.negative("test")[number]] @ source[own],
                source[links.negative_source("test")[number]] @ target[other],
            ]
        )
        ranks.append(1 + ((negatives > score).sum() + (negatives >= score).sum()) / 2)
    found = results[relation, 1]
    assert found["test_mrr"] == pytest.approx(np.mean(1 / np.array(ranks)), abs=1e-9)
    assert 1 < np.mean(ranks) < 10


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("ranks", RANKS[1:])
def test_figures_among_hard_negatives_do_not_depend_on_the_number_of_ranks(
    results: dict[tuple[str, int], Any], relation: str, ranks: int
) -> None:
    one, several = results[relation, 1], results[relation, ranks]
    assert_close(several["loss"], one["loss"], steps=20, bits=ADAM_BITS)
    figures = [name for name in one if name.startswith(("val_", "test_")) and isinstance(one[name], float)]
    assert "test_mrr" in figures
    for name in figures:
        assert several[name] == pytest.approx(one[name], abs=1e-9), name


def test_a_forecast_counts_the_lists_of_negatives(dataset: Dataset, hard: dict[str, Links]) -> None:
    random = str(hard["writes"].artifact.inputs["links"])
    few, many = (
        project_training(typed_config(dataset, "plan", relation="writes", links=key, fanout=(2, 2)))
        for key in (random, hard["writes"].artifact.key)
    )
    assert max(many.peak_memory) > 0
    assert many.read_bytes > few.read_bytes
