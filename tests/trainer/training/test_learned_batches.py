"""Input features that are learned from batches: only rows of a batch change, as ``torch.optim.SparseAdam`` does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.random_numbers import normal, stream_key
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.sampling.vertex import VertexSampler
from gnnloom.storage.sampling.walk import WalkSampler
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.covering import FEW_OR_EVERY, few_of
from support.dense_models import DenseModel
from support.lone import LoneCommunicator
from support.lone_training import lone_session
from support.mpi import train_all
from support.problems import problem
from support.sampled import sampled_config, store_for_sampling
from support.samples import in_memory, seeded
from support.tolerance import ADAM_BITS, assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

WIDTH, SEED, LR = 6, 3, 0.02
#: Epochs of a run: 20 steps or more.
EPOCHS = 8
GIVEN = problem("bare", 60, 240, symmetric=False, bare=True)
DENSE = GIVEN.adjacency.toarray()
RANKS = (1, 2, 4)
#: Options of the runs of each mode.
MODES: dict[str, dict[str, Any]] = {
    "neighbor": {"fanout": (ALL, ALL), "batch_size": 2},
    "minibatch": {"batch_size": 20},
    "subgraph": {"sampler": "walk", "walk_length": 2, "batch_size": 20, "batches": 3},
}


class Step(NamedTuple):
    """A step of training.

    Attributes:
        parts: of each batch, the vertices of its graph and which of them are in the loss.
        rows: the vertices whose features have a gradient.
    """

    parts: list[tuple[NDArray[Any], NDArray[Any]]]
    rows: NDArray[Any]


def config(catalog: Catalog, run: str, mode: str, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"embed": WIDTH, "seed": SEED, "lr": LR, "epochs": EPOCHS, "eval_every": 0}
    given = {**fixed, **MODES[mode], **options}
    if given["ranks"] > 1 and mode == "subgraph":
        # The same number of steps as on one rank, of which each is a mean over as many batches as there are ranks.
        given["batches"] *= given["ranks"]
    return sampled_config(catalog, "bare", mode, run, **given)


def graph() -> WholeGraph:
    return in_memory(GIVEN.adjacency)


def neighbor_steps(ranks: int) -> Iterator[list[Step]]:
    """The steps of every epoch, each of one batch of every rank; all neighbors are drawn."""
    part, everyone = GIVEN.part(ranks), np.arange(len(GIVEN.label))
    seeds_of = [np.flatnonzero(GIVEN.training & (part == rank)) for rank in range(ranks)]
    samplers = [seeded(graph(), SEED, seeds, (ALL, ALL), 2) for seeds in seeds_of if len(seeds)]
    reached = np.linalg.matrix_power((DENSE != 0) + np.eye(len(DENSE)), 2) > 0
    for epoch in range(EPOCHS):
        steps = []
        for number in range(max(sampler.num_batches for sampler in samplers)):
            drawn = [sampler.draw(epoch, number) for sampler in samplers if number < sampler.num_batches]
            seeds = [np.isin(everyone, each) for each in drawn]
            rows = np.flatnonzero(reached[np.concatenate(drawn)].any(0))
            steps.append(Step([(everyone, mask) for mask in seeds], rows))
        yield steps


def minibatch_steps(ranks: int) -> Iterator[list[Step]]:
    sampler = VertexSampler(graph(), SEED, 20)
    for epoch in range(EPOCHS):
        batches = [np.asarray(sampler.draw(epoch, number)) for number in range(sampler.num_batches)]
        yield [Step([(ids, GIVEN.training[ids])], ids) for ids in batches]


def subgraph_steps(ranks: int) -> Iterator[list[Step]]:
    sampler, batches = WalkSampler(graph(), SEED, 20, 2), MODES["subgraph"]["batches"]
    for epoch in range(EPOCHS):
        steps = []
        for number in range(epoch * batches, (epoch + 1) * batches):
            of_all = range(number * ranks, (number + 1) * ranks)
            drawn = [sampler.sample(*divmod(each, sampler.num_batches)).vertices for each in of_all]
            steps.append(Step([(ids, GIVEN.training[ids]) for ids in drawn], np.unique(np.concatenate(drawn))))
        yield steps


STEPS: dict[str, Callable[[int], Iterator[list[Step]]]] = {
    "neighbor": neighbor_steps, "minibatch": minibatch_steps, "subgraph": subgraph_steps
}  # fmt: skip


def dense_training(
    catalog: Catalog, mode: str, ranks: int, optimizer: str, clip: float
) -> tuple[list[float], DenseModel]:
    """Losses of training in dense torch, and the model, whose parameter ``feature`` has the features."""
    model = lone_session(config(catalog, "never", mode, ranks=1)).model
    arrays = {f"parameter/{name}": value.detach().numpy().copy() for name, value in model.named_parameters()}
    numbers = normal(stream_key(SEED, "learned features"), 0, len(DENSE) * WIDTH).reshape(-1, WIDTH)
    arrays["parameter/feature"] = numbers.astype(np.float64) / np.sqrt(WIDTH)
    dense = DenseModel.from_arrays("gcn", DENSE, arrays)
    feature = dense.parameters["feature"]
    weights = [value for value in dense.parameters.values() if value is not feature]
    if optimizer == "adam":
        peers: list[Any] = [torch.optim.Adam(weights, lr=LR), torch.optim.SparseAdam([feature], lr=LR)]
    else:
        peers = [torch.optim.SGD(weights, lr=LR), torch.optim.SGD([feature], lr=LR)]
    label, losses, num_steps = torch.tensor(GIVEN.label), [], 0
    for steps in STEPS[mode](ranks):
        total, terms = 0.0, 0
        for step in steps:
            count = sum(int(mask.sum()) for _, mask in step.parts)
            if not count:
                continue
            for each in dense.parameters.values():
                each.grad = None
            loss = torch.zeros((), dtype=torch.float64)
            for ids, mask in step.parts:
                dense.adjacency = DENSE[np.ix_(ids, ids)]
                scores = dense.scores(feature[ids])[mask]
                loss = loss + torch.nn.functional.cross_entropy(scores, label[ids][mask], reduction="sum")
            (loss / count).backward()  # type: ignore[no-untyped-call]
            if clip:
                torch.nn.utils.clip_grad_norm_(dense.parameters.values(), clip)
            assert feature.grad is not None
            rows = torch.tensor(step.rows)
            # torch warns if nobody says whether to check.
            with torch.sparse.check_sparse_tensor_invariants():  # type: ignore[no-untyped-call]
                feature.grad = torch.sparse_coo_tensor(rows[None], feature.grad[rows], feature.shape)
                for peer in peers:
                    peer.step()
            total, terms, num_steps = total + float(loss.detach()), terms + count, num_steps + 1
        losses.append(total / terms)
    assert num_steps >= 20
    return losses, dense


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("learned") / "catalog")
    store_for_sampling(catalog, GIVEN, *RANKS)
    return catalog


#: Optimizer and limit of the gradient's length of the runs on each number of ranks.
OPTIMIZERS = {1: ("adam", 0.0), 2: ("sgd", 0.0), 4: ("adam", 0.3)}
#: Numbers of ranks of the runs of each mode that are interrupted: each number once, or all of them.
SOME_PARTS = {"neighbor": (4,), "minibatch": (2,), "subgraph": (1,)}
EVERY_PART = dict.fromkeys(MODES, RANKS)
#: Numbers of ranks of the quick runs of each mode: one, with which other precisions are compared, and another.
SOME_RANKS = {"neighbor": (1, 4), "minibatch": (1, 2), "subgraph": (1, 2)}
Losses = dict[tuple[str, int, str], list[float]]


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def losses(request: pytest.FixtureRequest, catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Losses:
    """Of each mode and number of ranks: trained straight, and with an interruption and other threads."""
    keys, configs = list[tuple[str, int, str]](), []
    for mode, interrupted in (EVERY_PART if request.param else SOME_PARTS).items():
        for ranks in RANKS if request.param else SOME_RANKS[mode]:
            optimizer, clip = OPTIMIZERS[ranks]
            options: dict[str, Any] = {"ranks": ranks, "optimizer": optimizer, "clip_norm": clip}
            configs.append(config(catalog, f"{mode}-{ranks}-straight", mode, **options))
            keys.append((mode, ranks, "straight"))
            if ranks in interrupted:
                parts = config(catalog, f"{mode}-{ranks}-parts", mode, **options, sampler_threads=0)
                configs += [parts.with_options(epochs=3), parts]
                keys += [(mode, ranks, "before"), (mode, ranks, "parts")]
    # Only mini-batches are the same on any number of ranks.
    moved = config(catalog, "moved", "minibatch", ranks=1)
    configs += [moved.with_options(epochs=3), moved.with_options(ranks=4, epochs=5), moved.with_options(ranks=2)]
    keys += [("minibatch", 0, "1"), ("minibatch", 0, "4"), ("minibatch", 0, "2")]
    results = train_all(tmp_path_factory.mktemp("runs"), configs)
    assert not [result for result in results if "error" in result]
    return {key: result["loss"] for key, result in zip(keys, results, strict=True)}


@pytest.mark.parametrize("mode", MODES)
def test_steps_are_those_of_sparse_optimizers_of_torch(catalog: Catalog, losses: Losses, mode: str) -> None:
    trained = [ranks for ranks in RANKS if (mode, ranks, "straight") in losses]
    assert len(trained) >= 2
    for ranks in trained:
        _check_steps(catalog, losses, mode, ranks)


def _check_steps(catalog: Catalog, losses: Losses, mode: str, ranks: int) -> None:
    expected, dense = dense_training(catalog, mode, ranks, *OPTIMIZERS[ranks])
    assert_close(losses[mode, ranks, "straight"], expected, steps=10 * EPOCHS, bits=ADAM_BITS)
    arrays = checkpoint(catalog, f"{mode}-{ranks}-straight")
    for name, value in dense.parameters.items():
        found, bits = arrays[f"parameter/{name}"], ADAM_BITS + 4
        assert_close(found, value.detach().numpy(), steps=10 * EPOCHS, bits=bits, message=name)


def checkpoint(catalog: Catalog, run: str) -> dict[str, NDArray[Any]]:
    return dict(read_checkpoint(catalog["bare"].run_path(run) / "checkpoint").arrays)


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_run_repeats_a_straight_one_bit_for_bit(catalog: Catalog, losses: Losses, mode: str) -> None:
    interrupted = [ranks for ranks in RANKS if (mode, ranks, "parts") in losses]
    assert interrupted
    for ranks in interrupted:
        assert losses[mode, ranks, "parts"] == losses[mode, ranks, "straight"]
        parts, straight = (checkpoint(catalog, f"{mode}-{ranks}-{run}") for run in ("parts", "straight"))
        assert parts.keys() == straight.keys()
        assert all(np.array_equal(parts[name], straight[name]) for name in straight)


def test_a_run_goes_on_with_other_ranks(catalog: Catalog, losses: Losses) -> None:
    assert_close(losses["minibatch", 0, "2"], losses["minibatch", 1, "straight"], steps=10 * EPOCHS, bits=ADAM_BITS)
    moved, straight = (checkpoint(catalog, run) for run in ("moved", "minibatch-1-straight"))
    for name in ("feature/first", "feature/second"):
        assert_close(moved[f"optimizer/{name}"], straight[f"optimizer/{name}"], steps=10 * EPOCHS, bits=ADAM_BITS)


@pytest.mark.parametrize(("mode", "ranks"), few_of(MODES, (1, 4), together=1))
def test_the_memory_is_known_before_a_run_and_grows_with_the_width(catalog: Catalog, mode: str, ranks: int) -> None:
    narrow, wide = (
        project_training(config(catalog, "planned", mode, ranks=ranks, embed=width)) for width in (2000, 4000)
    )
    # Of the rank with most vertices: the features, their moments, and at least two copies for a checkpoint.
    assert max(wide.peak_memory) - max(narrow.peak_memory) > 60 // ranks * 2000 * 8 * 5
    assert wide.written_bytes > 1.9 * narrow.written_bytes


@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gat"])
def test_one_batch_of_all_vertices_is_a_step_on_the_whole_graph(catalog: Catalog, model: str) -> None:
    options: dict[str, Any] = {"model": model, "optimizer": "sgd", "epochs": 4, "ranks": 1}
    whole = config(catalog, f"whole-{model}", "minibatch", **options, batch_size=60)
    plain = whole.with_options(mode="full", batch_size=1024, run=f"full-{model}")
    expected = train(LoneCommunicator(), plain)["loss"]
    assert_close(train(LoneCommunicator(), whole)["loss"], expected, steps=20)
    neighbor = config(catalog, f"neighbor-{model}", "neighbor", **options | {"batch_size": 60})
    assert_close(train(LoneCommunicator(), neighbor)["loss"], expected, steps=20)
    # A walk from many roots reaches all vertices.
    long: dict[str, Any] = {"batch_size": 6000, "walk_length": 9, "batches": 1}
    subgraph = config(catalog, f"subgraph-{model}", "subgraph", **options | long)
    assert_close(train(LoneCommunicator(), subgraph)["loss"], expected, steps=20)


@pytest.mark.parametrize("mode", MODES)
def test_precisions_differ_by_rounding(catalog: Catalog, losses: Losses, mode: str) -> None:
    for precision, allowed in (("float32", 1e-4), ("bf16", 0.03)):
        given = config(catalog, f"{mode}-{precision}", mode, ranks=1, precision=precision)
        np.testing.assert_allclose(
            train(LoneCommunicator(), given)["loss"], losses[mode, 1, "straight"], rtol=allowed, err_msg=precision
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"samples": "abc"}, "samples 'abc': embed 6 does not read stored features"),
        ({"cache_memory": 1 << 20}, "cache_memory 1048576: embed 6 does not read stored features"),
    ],
)
def test_what_would_do_nothing_or_cannot_work_is_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        config(Catalog(tmp_path / "catalog"), "refused", "neighbor", ranks=1, **options)
