"""Modules of torch that take edges, PyG's among them, train and are evaluated as by themselves on the whole graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.descriptors import load_named
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.edge_modules import read_options
from gnnloom.trainer.models.networks.edge_model import EdgeModel
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.covering import few_of
from support.edge_modules import Trimmed
from support.lone import LoneCommunicator
from support.lone_training import lone_session
from support.mpi import TESTS, run_program, run_ranks
from support.pair_problems import pair_config, store_pairs
from support.problems import Problem, problem
from support.projections import parts_of
from support.sampled import sampled_config, store_for_sampling
from support.tolerance import ADAM_BITS, assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

RANKS = (1, 2, 3)
EPOCHS, HIDDEN = 3, (6, 6)
OWN, PYG = "support.edge_modules", "torch_geometric.nn"
PROBLEMS = {
    given.name: given
    for given in (
        problem("directed", 60, 240, symmetric=False),
        problem("no-loops", 61, 100, symmetric=True, loops=False),
        problem("weighted", 50, 200, symmetric=False, weighted=True),
    )
}
#: Those of the modules' losses and scores.
GRAPHS = ("directed", "no-loops")
#: Some of three ranks have no vertices, or no training vertices.
UNEVEN = {
    given.name: given
    for given in (
        problem("empty-ranks", 40, 160, symmetric=False, crowded=True),
        problem("training-on-one-rank", 60, 200, symmetric=False, gathered=True),
    )
}
#: Models, the fan-outs with which a batch has all that they read, and their options.
WHOLE: dict[str, tuple[str, int, dict[str, Any]]] = {
    "sums": (f"{OWN}:Sums", 3, {}),
    "trimmed": (f"{OWN}:Trimmed", 3, {}),
    # They read the rows of the sources, too.
    "by-degrees": (f"{OWN}:ByDegrees", 4, {}),
    "gcn": (f"{PYG}:GCN", 4, {}),
    "gcn-weights": (f"{PYG}:GCN", 3, {"normalization": "symmetric", "model_options": ("normalize=false",)}),
    "sage": (f"{PYG}:GraphSAGE", 3, {}),
    "gat": (f"{PYG}:GAT", 3, {"model_options": ("heads=2",)}),
    "gin": (f"{PYG}:GIN", 3, {}),
    "jumping": (f"{PYG}:GraphSAGE", 3, {"model_options": ("jk=cat",)}),
}


def edge_config(catalog: Catalog, name: str, run: str, model: str = f"{OWN}:Sums", **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"hidden": HIDDEN, "epochs": EPOCHS, "seed": 3, "batch_size": 1024, "eval_every": 0}
    mode = options.pop("mode", "neighbor")
    return sampled_config(catalog, name, mode, run, model=model, **{**fixed, **options})


def needs_pyg(model: str) -> None:
    if model.startswith(PYG):
        # Here, as every process of a test run collects this module, and the import takes seconds.
        pytest.importorskip("torch_geometric")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("edges") / "catalog")
    for given in PROBLEMS.values():
        store_for_sampling(catalog, given, *RANKS)
    return catalog


@pytest.fixture
def unrehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip rehearsals, which take longer than training on a tiny graph; other tests here do rehearse."""
    monkeypatch.setattr("gnnloom.trainer.training.start.rehearse", lambda *_: None)


def reference(model: str, given: Problem, options: tuple[str, ...], state: dict[str, Tensor] | None) -> nn.Module:
    """The module in float64, constructed without gnnloom; with the parameters of a run if any."""
    found: Any = load_named("model", model)
    before, generator = torch.get_default_dtype(), torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    try:
        module: nn.Module = found(
            in_channels=given.feature.shape[1],
            hidden_channels=HIDDEN[0],
            num_layers=len(HIDDEN) + 1,
            out_channels=3,
            dropout=0.0,
            **read_options(found, options),
        )
    finally:
        torch.set_default_dtype(before)
        torch.set_rng_state(generator)
    if state is not None:
        module.load_state_dict(state)
    return module


def state_of(catalog: Catalog, name: str, run: str) -> dict[str, Tensor]:
    arrays = read_checkpoint(Run.open(catalog[name], run).checkpoints).arrays
    prefix = "parameter/module."
    return {each.removeprefix(prefix): torch.tensor(array) for each, array in arrays.items() if each.startswith(prefix)}


def whole_edges(given: Problem) -> tuple[Tensor, Tensor]:
    """The edges of the whole graph, and their weights."""
    matrix = given.adjacency.tocoo()
    return torch.tensor(np.stack([matrix.col, matrix.row]).astype(np.int64)), torch.tensor(matrix.data)


def symmetric_weights(given: Problem) -> Tensor:
    index, data = whole_edges(given)
    degree = torch.zeros(len(given.label), dtype=torch.float64).index_add(0, index[1], data)
    return data * (degree[index[0]] * degree[index[1]]).rsqrt()


def whole_loss(module: nn.Module, given: Problem, weight: Tensor | None) -> Tensor:
    feature, mask = torch.tensor(given.feature).double(), torch.tensor(given.training)
    arguments = () if weight is None else (weight,)
    scores = module(feature, whole_edges(given)[0], *arguments)
    return nn.functional.cross_entropy(scores[mask], torch.tensor(given.label)[mask])


@pytest.mark.usefixtures("unrehearsed")
@pytest.mark.parametrize(("kind", "name"), few_of(WHOLE, GRAPHS, together=1))
def test_with_all_neighbors_loss_and_gradients_are_those_of_the_module_on_the_whole_graph(
    catalog: Catalog, kind: str, name: str
) -> None:
    model, hops, options = WHOLE[kind]
    needs_pyg(model)
    given, run = PROBLEMS[name], f"whole-{kind}"
    lr = 0.25
    # One step of gradient descent.
    every: dict[str, Any] = {"fanout": (ALL,) * hops, "epochs": 1, "optimizer": "sgd", "lr": lr, **options}
    result = train(LoneCommunicator(), edge_config(catalog, name, run, model, **every, final_eval=False))
    module = reference(model, given, options.get("model_options", ()), None)
    before = {key: parameter.detach().clone() for key, parameter in module.named_parameters()}
    loss = whole_loss(module, given, symmetric_weights(given) if "normalization" in options else None)
    loss.backward()  # type: ignore[no-untyped-call]
    assert_close(result["loss"], [loss.item()])
    after = state_of(catalog, name, run)
    for key, parameter in module.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert_close((before[key] - after[key]) / lr, gradient, steps=3, message=key)
    assert any(
        float(parameter.grad.abs().max()) > 1e-3 for parameter in module.parameters() if parameter.grad is not None
    )


@pytest.mark.parametrize(("kind", "name", "carried"), few_of(WHOLE, GRAPHS, (1, 2000), together=2))
def test_scores_of_an_evaluation_are_those_of_the_module_on_the_whole_graph(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, carried: int
) -> None:
    model, _, options = WHOLE[kind]
    needs_pyg(model)
    monkeypatch.setattr("gnnloom.trainer.passes.ranges.CARRIED", carried)
    given = PROBLEMS[name]
    session = lone_session(edge_config(catalog, name, "scores", model, feature_norm="none", **options))
    session.model.eval()
    with torch.no_grad():
        found = session.model.whole_scores(session.take_inputs())
        module = reference(model, given, options.get("model_options", ()), None).eval()
        weight = (symmetric_weights(given),) if "normalization" in options else ()
        expected = module(torch.tensor(given.feature).double(), whole_edges(given)[0], *weight)
    assert_close(found, expected, steps=3)
    facts = session.model.inference_facts
    assert facts["inference_exact"]
    by_layer = model.startswith(PYG) and kind != "jumping"
    assert facts["inference"] == ("layer by layer" if by_layer else "all neighbors, hop by hop")
    # Of what reads the degrees of the sources, only what takes no weights needs their rows.
    assert facts["inference_hops"] == (1 if by_layer else 4 if kind == "by-degrees" else 3)
    assert [path.name for path in catalog[name].path.iterdir() if path.is_file()] == ["zarr.json"]


@pytest.mark.usefixtures("unrehearsed")
@pytest.mark.parametrize("kind", ["sums", "gcn", "gcn-weights"])
def test_weights_of_the_graph_are_weights_of_the_edges(catalog: Catalog, kind: str) -> None:
    model, hops, options = WHOLE[kind]
    needs_pyg(model)
    given = PROBLEMS["weighted"]
    every: dict[str, Any] = {"fanout": (ALL,) * hops, "epochs": 1, "lr": 0.0, "feature_norm": "none", **options}
    config = edge_config(catalog, "weighted", f"weighted-{kind}", model, **every, final_eval=False)
    result = train(LoneCommunicator(), config)
    module = reference(model, given, options.get("model_options", ()), None).eval()
    weight = symmetric_weights(given) if "normalization" in options else whole_edges(given)[1]
    assert_close(result["loss"], [whole_loss(module, given, weight).item()])
    session = lone_session(config)
    session.model.eval()
    with torch.no_grad():
        found = session.model.whole_scores(session.take_inputs())
        expected = module(torch.tensor(given.feature).double(), whole_edges(given)[0], weight)
    assert_close(found, expected, steps=3)
    assert session.model.inference_facts["inference_exact"]


def test_a_graph_with_weights_is_refused_if_the_module_takes_none(catalog: Catalog) -> None:
    with pytest.raises(CollectiveError, match=r"weights.* model .*ByDegrees "):
        train(LoneCommunicator(), edge_config(catalog, "weighted", "refused", f"{OWN}:ByDegrees"))


# Its pooling multiplies sparse tensors of torch.
@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(("model", "options"), [(f"{OWN}:Centered", ()), (f"{PYG}:GraphUNet", ("depth=2",))])
def test_a_module_that_sees_all_vertices_at_once_is_not_evaluated_exactly_and_the_result_says_so(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, model: str, options: tuple[str, ...]
) -> None:
    needs_pyg(model)
    config = edge_config(catalog, "directed", f"sees-{len(options)}", model, model_options=options)
    result = train(LoneCommunicator(), config)
    assert result["inference_exact"] is False
    assert "scores differ from the scores on the whole graph" in caplog.text


def test_what_a_layer_does_not_need_is_left_out(catalog: Catalog) -> None:
    before = Trimmed.trimmed
    train(LoneCommunicator(), edge_config(catalog, "directed", "trim", f"{OWN}:Trimmed", epochs=1, fanout=(3, 2, 2)))
    assert Trimmed.trimmed > before


class Results:
    """Runs of one MPI job, by name, with what was killed before."""

    def __init__(self, catalog: Catalog, folder: Path) -> None:
        self.catalog = catalog
        every: dict[str, Any] = {"fanout": (ALL,) * 3, "patience": 100, "monitor": "val_loss", "eval_every": 1}
        # With dropout, and some neighbors.
        some: dict[str, Any] = {"fanout": (3, 2, 2), "batch_size": 4, "dropout": 0.4, "checkpoint_every": 1}
        killed = edge_config(catalog, "directed", "killed", ranks=2, **some)
        self.killed_after = _kill(killed, folder)
        configs = [
            *(edge_config(catalog, "directed", f"every-{ranks}", ranks=ranks, **every) for ranks in RANKS),
            *(edge_config(catalog, "directed", run, ranks=2, **some) for run in ("killed", "straight")),
            edge_config(catalog, "directed", "norm", f"{OWN}:Normalized", ranks=3, **some),
            edge_config(catalog, "directed", "subgraph", ranks=2, mode="subgraph", batch_size=20),
            edge_config(catalog, "directed", "embedded", ranks=2, embed=4, **some),
            edge_config(catalog, "directed", "bf16", ranks=2, precision="bf16", **some),
        ]
        configs += [
            edge_config(catalog, name, f"alone-{ranks}", ranks=ranks, **every) for name in UNEVEN for ranks in (1, 3)
        ]
        predictions = [
            PredictConfig.of(catalog=str(catalog.root), dataset="directed", run="every-2", ranks=3, model=f"{OWN}:Sums")
        ]
        found = run_program(max(RANKS), "train_all", folder, [each.to_json() for each in [*configs, *predictions]])
        self.by_run = dict(zip([each.run.name for each in configs], found, strict=False))
        self.uneven = dict(
            zip(
                [(each.data.dataset, each.algorithm.ranks) for each in configs if each.data.dataset in UNEVEN],
                found[-5:-1],
                strict=True,
            )
        )

    def loss(self, run: str) -> list[float]:
        losses: list[float] = self.by_run[run]["loss"]
        return losses


def _kill(config: TrainConfig, folder: Path) -> int:
    """Train until a rank kills itself; returns the number of epochs before that."""
    given, program = folder / "given.json", TESTS / "trainer" / "programs" / "killed.py"
    given.write_text(json.dumps({"config": config.to_json(), "steps": 6}))
    done = run_ranks(config.algorithm.ranks, str(program), str(given))
    assert done.returncode, done.stdout
    return len(Run.open(Catalog(Path(config.data.catalog))[config.data.dataset], str(config.run.name)).metrics())


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("ranks")
    catalog = Catalog(folder / "catalog")
    for given in (PROBLEMS["directed"], *UNEVEN.values()):
        store_for_sampling(catalog, given, *RANKS)
    return Results(catalog, folder)


def test_losses_and_metrics_are_the_same_on_any_number_of_ranks(results: Results) -> None:
    runs = [f"every-{ranks}" for ranks in RANKS]
    for run in runs[1:]:
        assert_close(results.loss(run), results.loss(runs[0]), steps=EPOCHS * 3, bits=ADAM_BITS)
        lines = [Run.open(results.catalog["directed"], each).metrics() for each in (run, runs[0])]
        for mine, other in zip(*lines, strict=True):
            assert_close(mine["val_loss"], other["val_loss"], steps=EPOCHS * 3, bits=ADAM_BITS)
            assert mine["test_accuracy"] == other["test_accuracy"]
    assert len(set(results.loss(runs[0]))) == EPOCHS


@pytest.mark.parametrize("name", UNEVEN)
def test_ranks_without_vertices_or_batches_take_part(results: Results, name: str) -> None:
    alone, three = (results.uneven[name, ranks] for ranks in (1, 3))
    assert_close(three["loss"], alone["loss"], steps=EPOCHS * 3, bits=ADAM_BITS)
    assert three["test_accuracy"] == alone["test_accuracy"]


def test_a_prediction_on_other_ranks_is_that_of_the_module(results: Results) -> None:
    given, found = PROBLEMS["directed"], Run.open(results.catalog["directed"], "every-2").predictions()
    module = reference(f"{OWN}:Sums", given, (), state_of(results.catalog, "directed", "every-2")).eval()
    with torch.no_grad():
        feature = torch.tensor(given.feature).double()
        expected = module(feature, whole_edges(given)[0])
    assert_close(found.score(), expected, steps=3)


def test_a_killed_run_goes_on_as_if_it_had_not_been(results: Results) -> None:
    assert 0 < results.killed_after < EPOCHS
    assert results.loss("killed") == results.loss("straight")
    arrays = [
        read_checkpoint(Run.open(results.catalog["directed"], run).checkpoints).arrays for run in ("killed", "straight")
    ]
    for name, array in arrays[1].items():
        np.testing.assert_array_equal(arrays[0][name], array, err_msg=name)


def test_batch_normalizations_lazy_parameters_learned_features_and_bf16_train(results: Results) -> None:
    for run in ("norm", "subgraph", "embedded", "bf16"):
        assert "error" not in results.by_run[run], results.by_run[run]
        losses = results.loss(run)
        assert np.isfinite(losses).all(), run
        assert len(set(losses)) == EPOCHS, run
        assert results.by_run[run]["inference_exact"], run


@pytest.mark.usefixtures("unrehearsed")
def test_batches_from_disk_are_those_that_are_drawn(catalog: Catalog) -> None:
    dataset = catalog["no-loops"]
    drawn: dict[str, Any] = {"fanout": (3, 2, 2), "batch_size": 4}
    keys = [
        write_samples(
            dataset,
            dataset.graph(),
            None,
            SampleOptions(**drawn, epochs=EPOCHS, seed=3, draw_once=once),
            InProcessCluster(),
        ).artifact.key
        for once in (True, False)
    ]
    options: dict[str, Any] = {"dropout": 0.3, "eval_every": 1, "patience": 100, "monitor": "val_loss"}
    one, other = (
        edge_config(catalog, "no-loops", run, **options, **given)
        for run, given in (("drawn", drawn), ("disk", {"samples": keys[0]}))
    )
    results = [train(LoneCommunicator(), each) for each in (one, other)]
    assert results[0]["loss"] == results[1]["loss"]
    lines = [Run.open(dataset, run).metrics() for run in ("drawn", "disk")]
    assert [line["val_loss"] for line in lines[0]] == [line["val_loss"] for line in lines[1]]
    with pytest.raises(CollectiveError, match="drawn with draw_once False, but True was asked for"):
        train(LoneCommunicator(), edge_config(catalog, "no-loops", "anew", samples=keys[1]))


@pytest.mark.usefixtures("unrehearsed")
def test_subgraphs_with_weights_give_them_to_the_edges(catalog: Catalog) -> None:
    options: dict[str, Any] = {"mode": "subgraph", "sampler": "vertex", "batch_size": 20}
    plain, weighted = (
        train(LoneCommunicator(), edge_config(catalog, "no-loops", f"saint-{number}", presamples=number, **options))
        for number in (0, 5)
    )
    assert plain["loss"] != weighted["loss"]
    assert np.isfinite(weighted["loss"]).all()


@pytest.mark.usefixtures("unrehearsed")
def test_a_resumed_run_has_the_losses_of_an_uninterrupted_one(catalog: Catalog) -> None:
    options: dict[str, Any] = {"fanout": (3, 2, 2), "batch_size": 5, "dropout": 0.3}
    whole = train(LoneCommunicator(), edge_config(catalog, "no-loops", "at-once", **options))
    train(LoneCommunicator(), edge_config(catalog, "no-loops", "twice", **{**options, "epochs": 2}))
    twice = train(LoneCommunicator(), edge_config(catalog, "no-loops", "twice", **options))
    assert twice["loss"] == whole["loss"]
    assert len(set(whole["loss"])) == EPOCHS


@pytest.mark.usefixtures("unrehearsed")
def test_the_first_layer_alone_may_decay(catalog: Catalog) -> None:
    options: dict[str, Any] = {"weight_decay": 0.1, "epochs": 2}
    losses = [
        train(
            LoneCommunicator(),
            edge_config(catalog, "no-loops", f"decay-{layers}", weight_decay_layers=layers, **options),
        )
        for layers in ("first", "all")
    ]
    assert losses[0]["loss"] != losses[1]["loss"]


def test_the_example_trains(catalog: Catalog) -> None:
    pytest.importorskip("torch_geometric")
    example = "gnnloom.workflows.examples.gated:GatedNet"
    result = train(
        LoneCommunicator(), edge_config(catalog, "directed", "gated", example, fanout=(3, 2, 2), dropout=0.3, epochs=4)
    )
    assert result["loss"][-1] < result["loss"][0]
    assert (result["inference"], result["inference_exact"]) == ("all neighbors, hop by hop", True)


@pytest.mark.parametrize("model", [f"{OWN}:Sums", f"{PYG}:GraphSAGE"])
def test_a_module_makes_the_vectors_of_pairs(tmp_path: Path, model: str) -> None:
    needs_pyg(model)
    catalog, given = Catalog(tmp_path / "catalog"), PROBLEMS["no-loops"]
    store_pairs(catalog, given, 1)
    options: dict[str, Any] = {"mode": "neighbor", "fanout": (3, 2), "link_batch": 30, "model": model, "epochs": 8}
    result = train(LoneCommunicator(), pair_config(catalog, given.name, "pairs", hidden=(8,), lr=0.02, **options))
    assert result["loss"][-1] < result["loss"][0]
    assert result["inference_exact"]
    assert 0 <= result["val_auc"] <= 1


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("OtherNames", (), "its constructor needs width; give it with --model-options width=VALUE"),
        ("Few", ("columns=2",), r"it returns shape \(6, 5\) for 6 vertices, expected shape \(6, 3\)"),
        ("Few", ("rows=1",), r"it returns shape \(5, 3\) for 6 vertices, expected shape \(6, 3\)"),
        ("Failing", ("when=constructor",), r"its constructor fails with in_channels=5, .*: ValueError: no luck"),
        ("Failing", (), "its forward fails on a graph of 6 vertices with 5 features: IndexError: out of luck"),
    ],
)
def test_what_the_module_cannot_do_is_one_clear_error(
    catalog: Catalog, model: str, options: tuple[str, ...], said: str
) -> None:
    with pytest.raises(CollectiveError, match=said):
        train(LoneCommunicator(), edge_config(catalog, "directed", "fails", f"{OWN}:{model}", model_options=options))


def test_dropout_needs_a_module_that_has_it(catalog: Catalog) -> None:
    with pytest.raises(CollectiveError, match=r"dropout 0\.5:"):
        train(LoneCommunicator(), edge_config(catalog, "directed", "fails", f"{OWN}:Few", dropout=0.5))


def test_fanouts_for_fewer_hops_than_layers_are_refused(catalog: Catalog) -> None:
    with pytest.raises(CollectiveError, match=r"fanout .* 3 layers"):
        train(LoneCommunicator(), edge_config(catalog, "directed", "fails", fanout=(3, 3)))


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A graph whose batches take more memory than Python's objects."""
    catalog = Catalog(tmp_path_factory.mktemp("web") / "catalog")
    store_for_sampling(catalog, problem("web", 6000, 40_000, symmetric=True), 1)
    return catalog


@pytest.mark.parametrize(
    "model",
    [
        f"{OWN}:Trimmed",
        f"{OWN}:Listed",
        f"{PYG}:GAT",
        *(pytest.param(model, marks=pytest.mark.long) for model in (f"{OWN}:Sums", f"{PYG}:GraphSAGE")),
    ],
)
def test_its_memory_is_planned_with_that_of_its_batches(web: Catalog, model: str) -> None:
    needs_pyg(model)
    # The first forecast of a process also counts what libraries allocate once.
    _, few, many = (
        project_training(edge_config(web, "web", "planned", model, batch_size=size, fanout=(5, 5, 5), pool=2))
        for size in (50, 50, 500)
    )
    for each in (few, many):
        assert each.peak_memory == [each.process_memory + sum(parts_of(each))]
    assert few.peak_memory < many.peak_memory
    assert few.batch_memory < many.batch_memory


@pytest.mark.parametrize("mode", ["neighbor", "subgraph"])
def test_a_module_is_planned_with_the_loops_that_it_replaces(tmp_path: Path, mode: str) -> None:
    catalog, cluster = Catalog(tmp_path), InProcessCluster()
    edges = StochasticBlockModel(num_vertices=6000, num_edges=9000, num_blocks=3, num_features=5, seed=2)
    wide: dict[str, Any] = {"hidden": (64, 64), "batch_size": 4000, "mode": mode}
    if mode == "neighbor":
        wide |= {"fanout": (10, 10, 10), "batch_size": 1000}
    taken = dict[str, int]()
    for name, options in (("with", IngestOptions(undirected=True)), ("without", IngestOptions(True, "keep"))):
        dataset = catalog.create(name)
        graph = ingest_graph(dataset, edges.edges(), options, cluster)
        ingest_vertices(dataset, edges.vertices(), cluster)
        shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(1, "block"), cluster), cluster)
        taken[name] = sum(parts_of(project_training(edge_config(catalog, name, "planned", f"{OWN}:Listed", **wide))))
    # Whether the graph or the module adds them, there are as many.
    assert taken["with"] == pytest.approx(taken["without"], rel=0.1)


def test_it_predicts_no_embeddings(catalog: Catalog) -> None:
    train(LoneCommunicator(), edge_config(catalog, "directed", "embeds"))
    config = PredictConfig.of(
        catalog=str(catalog.root), dataset="directed", run="embeds", embeddings=True, model=f"{OWN}:Sums"
    )
    with pytest.raises(CollectiveError, match=r"embeddings:"):
        predict(LoneCommunicator(), config)


def test_parameters_are_those_of_the_seed(catalog: Catalog) -> None:
    model = lone_session(edge_config(catalog, "directed", "seeded")).model
    assert isinstance(model, EdgeModel)
    expected = reference(f"{OWN}:Sums", PROBLEMS["directed"], (), None)
    for (name, mine), other in zip(model.module.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(mine, other), name


@pytest.mark.parametrize(
    ("model", "options"),
    [(f"{OWN}:Remembering", ()), (f"{PYG}:GCN", ("cached=true",))],
)
def test_a_module_that_keeps_the_edges_of_a_call_is_refused(
    catalog: Catalog, model: str, options: tuple[str, ...]
) -> None:
    needs_pyg(model)
    with pytest.raises(CollectiveError, match=r"earlier call.*cached=True"):
        train(LoneCommunicator(), edge_config(catalog, "directed", "remembers", model, model_options=options))
