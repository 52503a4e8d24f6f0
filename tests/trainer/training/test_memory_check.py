"""A training is refused only if it cannot fit the memory; samples and partitions decide the batches that it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training import start
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.projection import project_training, with_drawn_options
from support.lone import LoneCommunicator
from support.lone_training import opened_run
from support.partitions import store_partition
from support.problems import problem
from support.sampled import store_for_sampling

PARTS = 40
OWN_MODEL = "gnnloom.workflows.examples.gcnii:GCNII"
#: A model whose layers look at the values of their inputs.
VALUED = """
from gnnloom.workflows.examples.gcnii import GCNII

class Valued(GCNII):
    def create_parameters(self, generator):
        raise ValueError("values")
"""


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
    return TrainConfig.of(
        catalog=str(catalog.root), dataset="web", hidden=(64, 64), epochs=1, eval_every=0, threads=1, **options
    )


def check_fits(config: TrainConfig) -> int | None:
    return start.check_fits(LoneCommunicator(), opened_run(config))


def needed(config: TrainConfig) -> int:
    memory = check_fits(config)
    assert memory is not None
    return memory


def available(patch: pytest.MonkeyPatch, memory: int) -> None:
    patch.setattr(start, "available_memory", lambda: memory)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["cluster", "samples"])
def test_what_was_drawn_decides_whether_a_training_fits(
    catalog: Catalog, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(catalog, case)
    drawn = with_drawn_options(config, catalog["web"], catalog["web"].row_shards(1).artifact)
    true = needed(config)
    # What a process allocates for the first time counts too, some tens of KiB.
    assert true == pytest.approx(needed(drawn), abs=1 << 17)
    available(monkeypatch, round(1.1 * true))
    assert train(LoneCommunicator(), config, begun=lambda _: None)["state"] == "finished"
    # The plan is that of the run, not of one whose options are written out.
    assert drawn.run_name != config.run_name
    available(monkeypatch, true // 2)
    with pytest.raises(CollectiveError, match=rf"run {config.run_name}:.*--hidden"):
        train(LoneCommunicator(), config, restart=True, begun=lambda _: None)
    assert project_training(config, restart=True).run == config.run_name


def test_a_model_that_cannot_be_rehearsed_is_never_refused(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = TrainConfig.of(catalog=str(catalog.root), dataset="web", hidden=(64,), model=OWN_MODEL, run="own")
    assert needed(config) > 0
    available(monkeypatch, 0)
    with pytest.raises(CollectiveError, match="run own:"):
        check_fits(config)
    (tmp_path / "valued.py").write_text(VALUED)
    monkeypatch.chdir(tmp_path)
    valued = config.with_options(model="valued:Valued")
    assert check_fits(valued) is None
    with pytest.raises(InputError, match=r"run own:.*--epochs"):
        project_training(valued)


def test_fan_outs_of_another_number_of_layers_are_refused_at_once(catalog: Catalog) -> None:
    with pytest.raises(InputError, match=r"fanout 5,5: .*3 layers"):
        TrainConfig.of(catalog=str(catalog.root), dataset="web", hidden=(8, 8), mode="neighbor", fanout=(5, 5))


def test_without_evaluations_only_batches_need_memory(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig.of(
        catalog=str(catalog.root), dataset="web", mode="neighbor", fanout=(2, 2), batch_size=10,
        hidden=(4096,), eval_every=0, threads=1,
    )  # fmt: skip
    without = config.with_options(final_eval=False)
    hidden_layer = 2000 * 4096 * 4
    few = needed(without)
    assert needed(config) > hidden_layer > 2 * few
    available(monkeypatch, 2 * few)
    check_fits(without)
    with pytest.raises(CollectiveError, match=r"no evaluation \(--eval-every 0 --no-final-eval\)"):
        check_fits(config)
    available(monkeypatch, 0)
    with pytest.raises(CollectiveError, match=r"--pool.*--inputs.*--precision"):
        check_fits(without)
