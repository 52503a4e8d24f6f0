"""A training on samples that is killed in the middle of an epoch resumes with the losses of one that was not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from support.mpi import TESTS, run_ranks, train_all
from support.problems import problem
from support.sampled import sampled_config, store_for_sampling

RANKS, EPOCHS, SEED = 2, 5, 3
DRAWN: dict[str, Any] = {"fanout": (3, 2), "batch_size": 5}
#: Options of each way of training on samples.
CASES: dict[str, dict[str, Any]] = {
    "subgraph": {"mode": "subgraph", "batches": 6, "presamples": 20, "norm": "batch"},
    "minibatch": {"mode": "minibatch", "norm": "batch"},
    "neighbor": {"mode": "neighbor", "sampler_threads": 2, **DRAWN},
    "samples-on-disk": {"mode": "neighbor", "batch_size": DRAWN["batch_size"]},
    "learned-neighbor": {"mode": "neighbor", "embed": 6, **DRAWN},
    "learned-subgraph": {"mode": "subgraph", "batches": 6, "embed": 6},
    "learned-minibatch": {"mode": "minibatch", "embed": 6},
    "learned-full": {"mode": "full", "embed": 6, "batch_size": 1024},
}
#: One that draws a batch for all ranks, one in which every rank draws its own, and one that sends gradients of rows.
FEW = ("minibatch", "neighbor", "learned-neighbor")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("killed") / "catalog")
    dataset = store_for_sampling(catalog, problem("web", 60, 240, symmetric=True), RANKS)
    options = SampleOptions(**DRAWN, epochs=3, ranks=RANKS, seed=SEED)
    write_samples(dataset, dataset.graph(), dataset.partition(parts=RANKS), options, InProcessCluster())
    return catalog


def config(catalog: Catalog, case: str) -> TrainConfig:
    options: dict[str, Any] = {"dropout": 0.3, "checkpoint_every": 1, "eval_every": 0, "seed": SEED, **CASES[case]}
    if case == "samples-on-disk":
        options["samples"] = catalog["web"].samples().artifact.key
    return sampled_config(catalog, "web", run=f"killed-{case}", ranks=RANKS, epochs=EPOCHS, **options)


def kill(config: TrainConfig, folder: Path, steps: int) -> None:
    """Train until a rank kills itself before its update of this number."""
    given, program = folder / "given.json", TESTS / "trainer" / "programs" / "killed.py"
    given.write_text(json.dumps({"config": config.to_json(), "steps": steps}))
    done = run_ranks(RANKS, str(program), str(given))
    assert done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(FEW, id="few"),
        pytest.param(tuple(case for case in CASES if case not in FEW), id="others", marks=pytest.mark.long),
    ],
)
def test_runs_killed_within_an_epoch_have_the_losses_of_straight_ones(
    catalog: Catalog, tmp_path: Path, cases: tuple[str, ...]
) -> None:
    configs = [config(catalog, case) for case in cases]
    straight = [each.with_options(run=f"straight-{case}") for each, case in zip(configs, cases, strict=True)]
    for each, case in zip(configs, cases, strict=True):
        # The fifth update is in the second epoch: an epoch has three or four.
        kill(each, tmp_path, 5)
        lines = len(Run.open(catalog["web"], f"killed-{case}").metrics())
        assert 0 < lines < EPOCHS, case
    results = train_all(tmp_path, [*configs, *straight])
    for case, resumed, whole in zip(cases, results, results[len(cases) :], strict=False):
        assert resumed["loss"] == whole["loss"], case
        assert len(set(whole["loss"])) == EPOCHS, case
