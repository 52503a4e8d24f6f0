"""A model in plain PyTorch trains as it would in plain PyTorch: seeded, equal on all ranks, gradients exact."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gnnloom.storage import Catalog
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.state.checkpoint import whole_state
from support.covering import FEW_OR_EVERY
from support.dense import normalized
from support.lone import LoneCommunicator
from support.mpi import TESTS, run_program, run_ranks
from support.own_models import Plain
from support.problems import problem
from support.tolerance import ADAM_BITS, assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

PROBLEM = problem("graph", 60, 240, symmetric=False)
EPOCHS, SEED, HIDDEN, LR, DECAY, CLIP = 6, 3, (6, 6), 0.05, 0.1, 0.5
RANKS, FEW_RANKS = (1, 2, 4), (2,)
#: Update before which a rank is killed; an epoch has one.
KILLED_AT = 4
PLAIN, BATCH_NORM = "support.own_models:Plain", "support.own_models:WithBatchNorm"
DROPPED: dict[str, Any] = {"model_options": ("drop=0.5",), "checkpoint_every": 1}
NORMALIZED: dict[str, Any] = {"model": BATCH_NORM, "keep_best": "val_accuracy", "save_embeddings": True}


def config(catalog: Catalog, run: str, ranks: int, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"model": PLAIN, "normalization": "mean", "hidden": HIDDEN, "epochs": EPOCHS, "lr": LR}
    fixed |= {"precision": "float64", "dropout": 0.0, "seed": SEED, "weight_decay": DECAY, "clip_norm": CLIP}
    fixed |= {"threads": 1, "eval_every": 1}
    return TrainConfig.of(catalog=str(catalog.root), dataset="graph", run=run, ranks=ranks, **{**fixed, **options})


class DensePlain(nn.Module):
    """The model of :class:`support.own_models.Plain` on the dense adjacency."""

    def __init__(self, dims: tuple[int, ...], *, normalizes: bool = False) -> None:
        super().__init__()
        double: Any = {"dtype": torch.float64}
        layers = [nn.Linear(before, after, **double) for before, after in pairwise(dims)]
        self.linears = nn.ModuleList(layers)
        self.bonus = nn.Linear(dims[0], dims[1], **double)
        self.factor = nn.Parameter(torch.rand((), **double))
        self.shift = nn.Parameter(torch.randn(dims[-1], **double), requires_grad=False)
        self.unused = nn.Parameter(torch.randn(3, **double))
        self.normalization = nn.BatchNorm1d(dims[1], **double) if normalizes else nn.Identity()

    def forward(self, adjacency: Tensor, feature: Tensor) -> Tensor:
        hidden, last = feature, len(self.linears) - 1
        for layer, linear in enumerate(self.linears):
            output: Tensor = linear(adjacency @ hidden + self.factor * hidden)
            if layer == 0:
                output = output + (feature[:, :1] > Plain.LARGE) * self.bonus(feature)
            hidden = output + self.shift if layer == last else self.normalization(output).relu()
        return hidden


def dense_training(seed: int, *, normalizes: bool = False) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses and parameters of the training by torch alone."""
    adjacency = torch.tensor(normalized(PROBLEM.adjacency.toarray(), "mean"))
    feature = torch.tensor(PROBLEM.feature).double()
    before = torch.get_rng_state()
    torch.manual_seed(seed)
    model = DensePlain((feature.shape[1], *HIDDEN, 3), normalizes=normalizes)
    torch.set_rng_state(before)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=DECAY)
    mask, target = torch.tensor(PROBLEM.training), torch.tensor(PROBLEM.label)
    losses = []
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(adjacency, feature)[mask], target[mask])
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    state = model.state_dict() if normalizes else dict(model.named_parameters())
    return losses, {name: tensor.detach().numpy() for name, tensor in state.items()}


class Results:
    """All runs of one MPI job.

    Attributes:
        ranks: numbers of ranks of the runs that are compared with torch.
        repeated: runs that have the bits of other runs; the long tests have more of them.
        normalized: runs with a batch normalization.
    """

    def __init__(self, catalog: Catalog, folder: Path, *, every: bool) -> None:
        self.catalog, self.ranks = catalog, RANKS if every else FEW_RANKS
        self.repeated = {"dropped-again": "dropped", "killed": "dropped"}
        self.normalized = ["moved"]
        kill(config(catalog, "killed", 2, **DROPPED), folder)
        self.killed_after = len(Run.open(catalog["graph"], "killed").metrics())
        halves = [config(catalog, "halves", 2, **{**NORMALIZED, "epochs": EPOCHS // 2})]
        moved = [
            config(catalog, "moved", ranks, **{**NORMALIZED, "epochs": 2 * k}) for k, ranks in enumerate((4, 1, 2), 1)
        ]
        configs = [
            *(config(catalog, f"plain-{ranks}", ranks) for ranks in self.ranks),
            config(catalog, "other-seed", 2, seed=SEED + 1),
            *(config(catalog, run, 2, **DROPPED) for run in ("dropped", "dropped-again", "killed")),
            *moved,
        ]
        predicted = ["moved"]
        if every:
            self.repeated |= {"again": "plain-2", "halves": "straight"}
            self.normalized = ["straight", "moved"]
            configs += [config(catalog, "again", 2), config(catalog, "straight", 2, **NORMALIZED)]
            configs += [*halves, halves[0].with_options(epochs=EPOCHS)]
            predicted += ["straight", "plain-2"]
        where: dict[str, Any] = {"catalog": str(catalog.root), "dataset": "graph", "ranks": 4}
        models = {each.run.name: each.model.name for each in configs}
        predictions = [{**where, "run": run, "model": models[run]} for run in predicted]
        contents = [*(each.to_json() for each in configs), *predictions]
        found = run_program(4, "train_all", folder, contents)
        self.by_run = {each.run.name: result for each, result in zip(configs, found, strict=False)}
        self.predictions = found[len(configs) :]

    def loss(self, run: str) -> list[float]:
        losses: list[float] = self.by_run[run]["loss"]
        return losses

    def arrays(self, run: str) -> dict[str, np.ndarray]:
        return dict(read_checkpoint(Run.open(self.catalog["graph"], run).checkpoints).arrays)

    def assert_repeated(self, run: str) -> None:
        """A run has the bits of the one that it repeats."""
        other = self.repeated[run]
        assert self.loss(run) == self.loss(other)
        found, expected = self.arrays(run), self.arrays(other)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, err_msg=f"{run} {name}")


def kill(config: TrainConfig, folder: Path) -> None:
    """Train until a rank kills itself."""
    given, program = folder / "given.json", TESTS / "trainer" / "programs" / "killed.py"
    given.write_text(json.dumps({"config": config.to_json(), "steps": KILLED_AT}))
    done = run_ranks(config.algorithm.ranks, str(program), str(given))
    assert done.returncode, done.stdout


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("plain")
    catalog = Catalog(folder / "catalog")
    PROBLEM.store(catalog, *RANKS)
    return Results(catalog, folder, every=request.param)


def test_losses_and_parameters_equal_those_of_torch_on_any_number_of_ranks(results: Results) -> None:
    for ranks in results.ranks:
        _check(results, ranks)


def _check(results: Results, ranks: int) -> None:
    # Some ranks have no vertex that uses the module `bonus`, and so no gradient of its parameters.
    part = PROBLEM.part(ranks)
    uses = {int(part[vertex]) for vertex in np.flatnonzero(PROBLEM.feature[:, 0] > Plain.LARGE)}
    assert 0 < len(uses) < 4
    losses, parameters = dense_training(SEED)
    run = f"plain-{ranks}"
    assert_close(results.loss(run), losses, steps=EPOCHS * 3)
    arrays = results.arrays(run)
    assert {name for name in arrays if name.startswith("parameter/")} == {f"parameter/{name}" for name in parameters}
    for name, expected in parameters.items():
        found = arrays[f"parameter/{name}"]
        assert found.shape == expected.shape
        assert_close(found, expected, steps=EPOCHS * 3, bits=ADAM_BITS, message=name)
    assert losses[0] > losses[-1]


def test_the_seed_decides_the_parameters_of_modules_of_torch(results: Results) -> None:
    assert_close(results.loss("other-seed"), dense_training(SEED + 1)[0], steps=EPOCHS * 3)
    assert results.loss("other-seed")[0] != results.loss("plain-2")[0]


def test_the_callers_generator_is_left_alone(results: Results) -> None:
    before = torch.get_rng_state()
    result = train(LoneCommunicator(), config(results.catalog, "lone", 1, **DROPPED))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32
    assert len(set(result["loss"])) == EPOCHS


def test_masks_of_torchs_dropout_are_the_same_on_repetition_and_after_a_kill(results: Results) -> None:
    """In the long test, so is everything of runs without dropout that are repeated or resumed."""
    assert 0 < results.killed_after < EPOCHS
    for run in results.repeated:
        results.assert_repeated(run)
    assert results.loss("dropped")[0] != results.loss("plain-2")[0]


def test_a_frozen_parameter_and_one_that_nothing_uses_stay_as_they_are(results: Results) -> None:
    _, parameters = dense_training(SEED)
    for run in (f"plain-{results.ranks[-1]}", "killed", "moved"):
        arrays = results.arrays(run)
        for name in ("shift", "unused"):
            np.testing.assert_array_equal(arrays[f"parameter/{name}"], parameters[name])
        assert "optimizer/shift/first" not in arrays
        assert "optimizer/factor/first" in arrays


def test_a_scalar_and_a_batch_normalization_of_torch_are_stored_resumed_moved_and_predicted(results: Results) -> None:
    losses, expected = dense_training(SEED, normalizes=True)
    for run in results.normalized:
        stored = Run.open(results.catalog["graph"], run)
        state = whole_state(read_checkpoint(stored.checkpoints))
        assert state["factor"].shape == state["normalization.num_batches_tracked"].shape == ()
        # One training pass per layer with a normalization and epoch.
        assert int(state["normalization.num_batches_tracked"]) == EPOCHS * len(HIDDEN)
        assert "rows" not in state
        # On any number of ranks, the rows of all of them are normalized together.
        assert_close(results.loss(run), losses, steps=EPOCHS * 4, bits=ADAM_BITS)
        for name in ("normalization.running_mean", "normalization.running_var", "factor"):
            assert_close(state[name].numpy(), expected[name], steps=EPOCHS * 4, bits=ADAM_BITS, message=name)
        assert results.by_run[run]["ranks"] == 2
        assert stored.best_checkpoint.exists()
    for prediction in results.predictions:
        assert "error" not in prediction, prediction
    for run in results.normalized:
        assert np.isfinite(Run.open(results.catalog["graph"], run).predictions().score()).all()
