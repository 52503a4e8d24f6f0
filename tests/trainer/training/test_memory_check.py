"""A training is refused only if it cannot fit the memory; samples and partitions decide the batches that it needs."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import pytest

from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError, InputError
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training import memory_check
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.memory_check import check_memory
from gnnloom.trainer.training.projection import (
    UNCERTAINTY,
    memory_beyond_process,
    project_training,
    with_drawn_options,
)
from gnnloom.trainer.training.shard_sizes import sizes_of
from support.lone import LoneCommunicator
from support.partitions import store_partition
from support.problems import problem
from support.sampled import store_for_sampling

PARTS = 40
OWN_MODEL = "gnnloom.workflows.examples.gcnii:GCNII"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("checked") / "catalog")
    given = problem("web", 2000, 20_000, symmetric=True)
    dataset = store_for_sampling(catalog, given, 1)
    store_partition(dataset, dataset.graph(), given.part(PARTS), PARTS)
    options = SampleOptions(fanout=(2, 1, 1), batch_size=10, epochs=1, ranks=1)
    write_samples(dataset, dataset.graph(), None, options, InProcessCluster())
    return catalog


def configured(catalog: Catalog, case: str) -> TrainConfig:
    options: dict[str, Any] = {"mode": "subgraph", "sampler": "cluster", "parts_per_batch": 1}
    options["cluster_key"] = catalog["web"].partition(PARTS).artifact.key
    if case == "samples":
        options = {"mode": "neighbor", "samples": catalog["web"].samples().artifact.key}
    return TrainConfig(
        catalog=str(catalog.root), dataset="web", hidden=(64, 64), epochs=1, eval_every=0, threads=1, **options
    )


def needed(catalog: Catalog, config: TrainConfig) -> int:
    (memory,) = memory_beyond_process(config, sizes_of(catalog["web"].row_shards(1)))
    return memory


@pytest.mark.parametrize("case", ["cluster", "samples"])
def test_what_was_drawn_decides_whether_a_training_fits(
    catalog: Catalog, case: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = configured(catalog, case)
    drawn = with_drawn_options(config, catalog["web"], catalog["web"].row_shards(1).artifact)
    true, inflated = needed(catalog, drawn), needed(catalog, config)
    assert inflated > UNCERTAINTY * true
    monkeypatch.setattr(memory_check, "available_memory", lambda: true)
    assert train(LoneCommunicator(), config)["state"] == "finished"
    assert "of memory, but only" not in caplog.text
    # The plan is that of the run, not of one whose options are written out.
    assert drawn.run_name != config.run_name
    monkeypatch.setattr(memory_check, "available_memory", lambda: true // 2)
    with pytest.raises(
        CollectiveError, match=rf"run {config.run_name}: .*\(--hidden\), smaller batches .* or train on"
    ):
        train(LoneCommunicator(), config, restart=True)
    assert project_training(config, restart=True).run == config.run_name


def test_a_model_of_which_nothing_is_known_is_never_refused(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shards = catalog["web"].row_shards(1)
    for model in ("gcn", OWN_MODEL):
        config = TrainConfig(catalog=str(catalog.root), dataset="web", hidden=(64,), model=model)
        memory = needed(catalog, config)
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
            patch.setattr(memory_check, "available_memory", lambda memory=memory: math.floor(memory / 3))
            if model == OWN_MODEL:
                check_memory(config, "mine", shards, 1)
            else:
                with pytest.raises(BudgetError, match="run mine: the rank on this machine will need"):
                    check_memory(config, "mine", shards, 1)
    assert [record.getMessage().startswith("run mine: the rank") for record in caplog.records] == [True]


def test_planning_refuses_fan_outs_of_another_number_of_layers(catalog: Catalog) -> None:
    config = TrainConfig(catalog=str(catalog.root), dataset="web", hidden=(8, 8), mode="neighbor", fanout=(5, 5))
    with pytest.raises(InputError, match=r"fanout \(5, 5\): the model has 3 layers, so give as many numbers"):
        project_training(config)


def test_without_evaluations_only_batches_need_memory(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig(
        catalog=str(catalog.root), dataset="web", mode="neighbor", fanout=(2, 2), batch_size=10,
        hidden=(4096,), eval_every=0, threads=1,
    )  # fmt: skip
    shards = catalog["web"].row_shards(1)
    without = replace(config, final_eval=False)
    hidden_layer = 2000 * 4096 * 4
    assert needed(catalog, config) > hidden_layer > 4 * needed(catalog, without)
    monkeypatch.setattr(memory_check, "available_memory", lambda: needed(catalog, without))
    check_memory(without, "small", shards, 1)
    with pytest.raises(BudgetError, match=r"no evaluation \(--eval-every 0 --no-final-eval\)"):
        check_memory(config, "large", shards, 1)
    monkeypatch.setattr(memory_check, "available_memory", lambda: 0)
    with pytest.raises(BudgetError, match=r"\(--pool\), --precision bf16, or"):
        check_memory(without, "small", shards, 1)
