"""Modules for graphs with types train and are evaluated as by themselves on the whole graph, on any number of ranks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import gnnloom
from gnnloom.storage import Dataset
from gnnloom.storage.errors import GnnloomError, InputError, NotFoundError
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.storage.upkeep.removal import remove_artifact
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from support.lone import LoneCommunicator
from support.lone_training import lone_session
from support.mpi import run_program
from support.tolerance import ADAM_BITS, assert_close
from support.typed_papers import COUNTS, store, tables, whole_graph
from support.typed_runs import OWN, RANKS, stored_state, typed_config, with_topics

#: They share training runs on several ranks, and most need PyG.
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def _pyg() -> None:
    # Not while tests are collected, which every process does: it takes seconds.
    pytest.importorskip("torch_geometric.nn")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    found: Dataset = with_topics(store(tmp_path_factory.mktemp("typed") / "catalog", "papers", tables()))
    next(iter(gnnloom.loader(found, fanout=1, of_type="paper", reverse=True)))
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Topics have no features."""
    found: Any = store(tmp_path_factory.mktemp("bare") / "catalog", "bare", tables(4))
    next(iter(gnnloom.loader(found, fanout=1, of_type="paper", reverse=True)))
    return found  # type: ignore[no-any-return]


def whole_scores(module: nn.Module, data: Any, model: str) -> Tensor:
    """The scores of all papers by a module on the whole graph."""
    names = [name for name in data.node_types if name in data.collect("x")]
    edges = {each: data[each].edge_index for each in data.edge_types if {each[0], each[2]} <= set(names)}
    attributes = {each: value for each, value in data.collect("edge_attr", allow_empty=True).items() if each in edges}
    further = () if model in {"Converted", "Averages"} else (attributes,)
    found = module({name: data[name].x for name in names}, edges, *further)
    return found if isinstance(found, Tensor) else found["paper"]


@pytest.mark.parametrize(
    ("model", "reverse"),
    [("Sage", False), ("Attention", True), ("Transformer", True), ("Relational", False), ("Converted", True)],
)
def test_with_all_neighbors_a_step_and_the_scores_are_those_of_the_module_on_the_whole_graph(
    dataset: Dataset, model: str, reverse: bool
) -> None:
    data, lr, run = whole_graph(dataset, reverse=reverse), 0.25, f"whole-{model.lower()}-{reverse}".lower()
    options = {"fanout": (ALL,) * 2, "epochs": 1, "optimizer": "sgd", "lr": lr, "hidden": (6,), "reverse": reverse}
    config = typed_config(dataset, run, model, **options)
    module: Any = copy.deepcopy(lone_session(config).model.module)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    result = train(LoneCommunicator(), config)
    known = data["paper"].train_mask
    loss = nn.functional.cross_entropy(whole_scores(module, data, model)[known], data["paper"].y[known])
    loss.backward()  # type: ignore[no-untyped-call]
    assert_close(result["loss"], [loss.item()])
    after, formed = stored_state(dataset, run), 0
    for name, parameter in module.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        formed += parameter.grad is not None and float(gradient.abs().max()) > 1e-3
        assert_close((before[name] - after[name]) / lr, gradient, steps=4, message=name)
    assert formed > 4
    module.load_state_dict({**module.state_dict(), **after})
    with torch.no_grad():
        expected = whole_scores(module.eval(), data, model)
    predict(LoneCommunicator(), PredictConfig.of_run(dataset, Run.open(dataset, run), model=config.model.name))
    found = Run.open(dataset, run).predictions()
    assert_close(found.array("score").read(), expected, steps=4)
    np.testing.assert_array_equal(found.array("label").read(), expected.argmax(1))
    for prefix, mask in (("val", "val_mask"), ("test", "test_mask")):
        chosen = data["paper"][mask] & (data["paper"].y >= 0)
        right = (expected.argmax(1) == data["paper"].y)[chosen]
        assert result[f"{prefix}_accuracy"] == pytest.approx(float(right.double().mean()))


def test_a_type_to_which_no_relation_leads_is_named_with_the_option_that_helps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    people = pd.DataFrame({"id": range(6), "x": np.arange(6.0), "y": [0, 1] * 3, "split": ["train"] * 6})
    pays = pd.DataFrame({"who": range(6), "shop": [0, 1, 2] * 2})
    shops = pd.DataFrame({"id": range(3), "x": np.arange(3.0)})
    found: Any = gnnloom.ingest(
        "shops",
        relations={("person", "pays", "shop"): (pays, ["who", "shop"])},
        vertices={
            "person": (people, ["id", "x as feature", "y as label", "split as split"]),
            "shop": (shops, ["id", "x as feature"]),
        },
        workers=0,
        catalog=tmp_path,
    )
    next(iter(gnnloom.loader(found, fanout=1, of_type="person", reverse=True)))
    for reverse in (False, True):
        caplog.clear()
        options: dict[str, Any] = {"of_type": "person", "epochs": 1, "fanout": (2,), "hidden": (), "reverse": reverse}
        train(LoneCommunicator(), typed_config(found, f"run-{reverse}".lower(), **options))
        said = [each.getMessage() for each in caplog.records if "no relation leads to" in each.getMessage()]
        assert [" person" in each and "--reverse" in each for each in said] == [True][reverse:]


def test_a_relation_has_fan_outs_of_its_own(dataset: Dataset) -> None:
    data, some = whole_graph(dataset), dict[str, Any](fanout=(ALL, ALL), epochs=1, lr=0.0)
    losses = [
        train(LoneCommunicator(), typed_config(dataset, f"own-{at}", **some, relation_fanout=given))["loss"]
        for at, given in enumerate(
            [("cites=0", "knows=2:2"), ("cites=0:0", "knows=2"), ("cites=-1", "knows=-1:-1"), ()]
        )
    ]
    assert losses[0] == losses[1] != losses[2] == losses[3]
    module: Any = lone_session(typed_config(dataset, "own")).model.module
    for each in (("paper", "cites", "paper"), ("author", "knows", "author")):
        for name, value in list(data[each].items()):
            data[each][name] = value[:, :0] if name == "edge_index" else value[:0]
    none = typed_config(dataset, "none", **some, relation_fanout=("cites=0", "knows=0"))
    known = data["paper"].train_mask
    expected = nn.functional.cross_entropy(whole_scores(module, data, "Sage")[known], data["paper"].y[known])
    assert_close(train(LoneCommunicator(), none)["loss"], [expected.item()])


@pytest.mark.parametrize(
    ("model", "reverse", "by_layer", "hops"),
    [
        ("Sage", True, True, 1),
        ("Deeper", False, True, 1),
        ("Transformer", True, True, 1),
        ("Relational", True, True, 1),
        ("Attention", False, True, 1),
        ("Converted", True, True, 1),
        # No submodule takes edges.
        ("Averages", True, False, 2),
        ("Centered", True, False, 0),
        ("ByOutEdges", False, False, 0),
        # With reverses, all papers of an author are neighbors, but batches of one hop have rows of them only.
        ("ByOutEdges", True, True, 3),
    ],
)
def test_hops_of_an_evaluation_are_what_the_module_reads(
    dataset: Dataset,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    reverse: bool,
    by_layer: bool,
    hops: int,
) -> None:
    # Batches of one vertex: the whole graph would fit in one.
    monkeypatch.setattr("gnnloom.trainer.passes.ranges.CARRIED", 1)
    session = lone_session(typed_config(dataset, "reads", model, reverse=reverse))
    model_of: Any = session.model.eval()
    data = whole_graph(dataset, reverse=reverse)
    with torch.no_grad():
        found = model_of.whole_scores(session.take_inputs())
        expected = whole_scores(model_of.module, data, model)
    facts = model_of.inference_facts
    assert facts["inference"] == ("layer by layer" if by_layer else "all neighbors, hop by hop")
    assert facts["inference_exact"] == bool(hops)
    assert facts["inference_hops"] == (hops or 2)
    assert ("scores differ" in caplog.text) == (not hops)
    if hops:
        assert_close(found, expected, steps=4)
    else:
        assert not np.allclose(found, expected)


#: Batches that are drawn during training, and before.
DRAWN: dict[str, Any] = {"fanout": (3, 2), "relation_fanout": ("rev_writes=1:4",), "batch_size": 5}
#: Batches whose vertices draw from all relations but one together.
TOTAL: dict[str, Any] = {**DRAWN, "fanout_total": True}


def _packed(dataset: Dataset, ranks: int, drawn: dict[str, Any] = DRAWN) -> str:
    """The key of samples of papers."""
    given: dict[str, Any] = {**drawn, "of_type": "paper", "seed": 3, "epochs": 2, "reverse": True, "cache_memory": 400}
    return gnnloom.sample(dataset, ranks=ranks, workers=0, **given).artifact.key


class Results:
    """Runs of one MPI job, by name."""

    def __init__(self, dataset: Dataset, bare: Dataset, folder: Path) -> None:
        every: dict[str, Any] = {"fanout": (ALL, ALL), "eval_every": 1, "patience": 100, "monitor": "val_loss"}
        some: dict[str, Any] = {"fanout": (3, 2), "batch_size": 5, "lr": 0.0, "epochs": 2}
        drops: dict[str, Any] = {"fanout": (3, 2), "batch_size": 5, "dropout": 0.3, "checkpoint_every": 1, "epochs": 4}
        configs = [
            # Steps of one size.
            *(typed_config(dataset, f"every-{n}", ranks=n, batch_size=12 // n, **every) for n in RANKS),
            *(typed_config(dataset, f"some-{n}", "Attention", ranks=n, **some) for n in RANKS),
            *(
                typed_config(dataset, f"{name}-{n}", "Attention", ranks=n, reverse=True, epochs=2, **options)
                for n in RANKS
                for name, options in (
                    ("drawn", DRAWN),
                    ("packed", {"samples": _packed(dataset, n)}),
                    ("drawn-total", TOTAL),
                    ("packed-total", {"samples": _packed(dataset, n, TOTAL)}),
                )
            ),
            *(
                typed_config(bare, f"{name}-learned", ranks=2, embed=4, reverse=True, epochs=2, **options)
                for name, options in (("drawn", DRAWN), ("packed", {"samples": _packed(bare, 2)}))
            ),
            typed_config(dataset, "straight", ranks=2, **drops),
            typed_config(dataset, "resumed", ranks=2, **{**drops, "epochs": 2}),
            typed_config(dataset, "resumed", ranks=2, **drops),
            # Fewer batches than ranks.
            *(typed_config(dataset, f"few-{n}", "Normalized", ranks=n, fanout=(ALL, ALL), reverse=True) for n in RANKS),
            *(
                typed_config(bare, f"learned-{n}", ranks=n, batch_size=12 // n, embed=4, reverse=True, **every)
                for n in RANKS
            ),
        ]
        predictions = [
            PredictConfig.of(
                catalog=str(each.path.parent), dataset=each.name, run=run, ranks=ranks, model=f"{OWN}:Sage"
            )
            for each, run, ranks in ((dataset, "every-1", 4), (bare, "learned-4", 2))
        ]
        found = run_program(max(RANKS), "train_all", folder, [each.to_json() for each in [*configs, *predictions]])
        self.by_run = dict(zip([each.run.name for each in configs], found, strict=False))
        self.predicted = found[-2:]

    def loss(self, run: str) -> list[float]:
        losses: list[float] = self.by_run[run]["loss"]
        return losses


@pytest.fixture(scope="module")
def results(dataset: Dataset, bare: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(dataset, bare, tmp_path_factory.mktemp("results"))


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_losses_and_scores_do_not_depend_on_the_number_of_ranks(dataset: Dataset, results: Results, ranks: int) -> None:
    one, several = (results.by_run[f"every-{number}"] for number in (1, ranks))
    assert_close(several["loss"], one["loss"], steps=20, bits=ADAM_BITS)
    for split in ("train", "val", "test"):
        assert several[f"{split}_accuracy"] == one[f"{split}_accuracy"]
    # The batches of sampled neighbors are the same, whichever rank makes them.
    assert_close(results.loss(f"some-{ranks}"), results.loss("some-1"), steps=4)
    learned = [results.by_run[f"learned-{number}"] for number in (1, ranks)]
    assert_close(learned[1]["loss"], learned[0]["loss"], steps=20, bits=ADAM_BITS)
    assert learned[1]["val_accuracy"] == learned[0]["val_accuracy"]
    # A rank without a batch takes part in a normalization over all rows.
    assert_close(results.loss(f"few-{ranks}"), results.loss("few-1"), steps=20, bits=ADAM_BITS)


@pytest.mark.parametrize("which", ["1", "2", "4", "total-1", "total-4", "learned"])
def test_batches_that_were_packed_before_train_as_those_that_are_drawn_do(results: Results, which: str) -> None:
    name, _, ranks = which.rpartition("-")
    drawn, packed = results.by_run[f"drawn-{which}"], results.by_run[f"packed-{which}"]
    if name == "total":
        assert drawn["loss"] != results.by_run[f"drawn-{ranks}"]["loss"]
    assert packed["loss"] == drawn["loss"]
    assert packed["val_accuracy"] == drawn["val_accuracy"]
    # Everything that steps read was packed, and a rank counts what it reads of it.
    assert min(packed["bytes_read"]) > 0


def test_predictions_on_other_ranks_are_those_of_the_module(dataset: Dataset, results: Results) -> None:
    assert results.predicted[0]["ranks"] == 4
    data, config = whole_graph(dataset), typed_config(dataset, "every-1")
    module: Any = lone_session(config).model.module
    module.load_state_dict(stored_state(dataset, "every-1"))
    with torch.no_grad():
        expected = whole_scores(module.eval(), data, "Sage")
    assert_close(Run.open(dataset, "every-1").predictions().array("score").read(), expected, steps=4)


def test_learned_features_are_vectors_that_a_step_updates(bare: Dataset, results: Results) -> None:
    """On two ranks after a training on four; papers of the whole graph know all topics near them."""
    assert results.predicted[1]["ranks"] == 2
    arrays = read_checkpoint(Run.open(bare, "learned-4").checkpoints).arrays
    vectors = torch.tensor(arrays["parameter/feature_topic"])
    assert vectors.shape == (COUNTS["topic"], 4)
    data, config = whole_graph(bare, reverse=True), typed_config(bare, "learned-4", embed=4, reverse=True)
    data["topic"].x = vectors
    session = lone_session(config)
    session.take_inputs()
    module: Any = session.model.module
    first = dict(session.model.named_parameters())["feature_topic"].detach()
    assert float((first - vectors).abs().max()) > 1e-3
    module.load_state_dict(stored_state(bare, "learned-4"))
    with torch.no_grad():
        expected = whole_scores(module.eval(), data, "Sage")
    assert_close(Run.open(bare, "learned-4").predictions().array("score").read(), expected, steps=4)
    one = read_checkpoint(Run.open(bare, "learned-1").checkpoints).arrays["parameter/feature_topic"]
    assert_close(vectors, one, steps=20, bits=ADAM_BITS)


def test_a_run_that_goes_on_is_one_that_was_never_stopped(results: Results) -> None:
    assert len(results.loss("straight")) == 4
    assert results.loss("resumed") == results.loss("straight")


def test_types_without_features_have_vectors_of_the_module(tmp_path: Path) -> None:
    dataset = store(tmp_path / "catalog", "papers", tables(1))
    config = typed_config(dataset, "vectors", "Embedded", fanout=(2, 2), batch_size=8)
    result = train(LoneCommunicator(), config)
    assert result["loss"][-1] < result["loss"][0]
    assert stored_state(dataset, "vectors")["vectors.topic.weight"].shape == (COUNTS["topic"], 6)


@pytest.mark.parametrize(("array", "width"), [("label", 3), ("target", 2)])
def test_several_labels_and_numbers_are_learned(tmp_path: Path, array: str, width: int) -> None:
    dataset: Any = with_topics(store(tmp_path / "catalog", "papers", tables(2)))
    rng, count = np.random.default_rng(3), COUNTS["author"]
    values = rng.integers(0, 2, (count, width)) if array == "label" else rng.normal(size=(count, width))
    split = rng.choice(["train", "valid", "test"], count)
    (before,) = dataset.fitting("vertices", type="author")
    given: dict[str, Any] = {"feature": rng.normal(size=(count, 4)), array: values, "split": split}
    gnnloom.features(dataset, of_type="author", add=True, **given)
    (added,) = (info.key for info in dataset.fitting("vertices", type="author") if info.key != before.key)
    options: dict[str, Any] = {
        "mode": "neighbor",
        "model": f"{OWN}:Sage",
        "hidden": 6,
        "fanout": (3, 2),
        "epochs": 4,
        "run": "some",
    }
    with pytest.raises(InputError, match="vertex_data author=KEY"):
        gnnloom.train(dataset, of_type="author", **options)
    gnnloom.train(dataset, of_type="author", vertex_data=[f"author={added}"], **options)
    loss = Run.open(dataset, "some").result()["loss"]
    assert loss[-1] < loss[0]
    predicted = gnnloom.predict("papers/some", model=f"{OWN}:Sage", catalog=dataset.path.parent)
    assert predicted.predictions().shape == (count, width)
    assert predicted.frame()["vertex"].tolist() == dataset.typed_graph().original_id("author").tolist()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"model": "gcn"}, "of_type"),
        ({"model": f"{OWN}:WithoutTypes"}, "of_type"),
        ({"model": f"{OWN}:Wanting"}, "colors"),
        ({"of_type": None}, "--of-type"),
        ({"of_type": None, "reverse": True, "model": f"{OWN}:WithoutTypes"}, "reverse"),
        ({"of_type": None, "mode": "full", "batch_size": 1024}, "--mode neighbor"),
        ({"of_type": None, "mode": "subgraph"}, "--mode neighbor"),
        ({"mode": "subgraph"}, "of_type"),
        ({"of_type": "papers"}, "paper"),
        ({"of_type": "author"}, "no label and no split"),
        ({"embed": 4}, "embed"),
        ({"train_features": True}, "train_features"),
        ({"shards": "0123"}, "shards"),
        ({"vertex_data": ("paper",)}, "vertex_data"),
        ({"vertex_data": ("paper=0123",)}, "0123"),
        ({"cache_memory": 0}, "cache_memory"),
        ({"normalization": "mean"}, "normalization"),
        ({"fanout": (3,)}, "fanout"),
        ({"task": "multilabel"}, "multilabel"),
        ({"model_options": ("metadata=1",)}, "metadata"),
        ({"save_embeddings": True}, "save_embeddings"),
        ({"relation_fanout": ("cite=3",)}, r"cite=3.*did you mean cites\?"),
        ({"relation_fanout": ("cites=3:2:1",)}, "cites=3:2:1.*3 hops"),
        ({"relation_fanout": ("cites=x",)}, "cites=x"),
        ({"relation_fanout": ("cites=-2",)}, "cites=-2"),
        ({"of_type": None, "relation_fanout": ("cites=3",), "model": f"{OWN}:WithoutTypes"}, "relation_fanout"),
    ],
)
def test_what_does_not_fit_types_is_refused(dataset: Dataset, options: dict[str, Any], named: str) -> None:
    given = {"fanout": (3, 2), **options} if "mode" not in options else options
    with pytest.raises((InputError, NotFoundError, CollectiveError), match=named):
        train(LoneCommunicator(), typed_config(dataset, "refused", **given))
    assert "refused" not in dataset.runs()


def test_samples_that_do_not_fit_a_run_are_refused(dataset: Dataset) -> None:
    given: dict[str, Any] = {"of_type": "paper", "fanout": (3, 2), "batch_size": 5, "epochs": 1, "workers": 0}
    key = gnnloom.sample(dataset, **given).artifact.key
    two = gnnloom.sample(dataset, **given, ranks=2).artifact.key
    refused: list[tuple[str, dict[str, Any]]] = [
        ("2 ranks", {"samples": two}),
        ("reverse", {"samples": key, "reverse": True}),
        ("batch_size 5, but 7", {"samples": key, "batch_size": 7}),
        ("fanout", {"samples": key, "fanout": (4, 2)}),
        ("relation_fanout", {"samples": key, "relation_fanout": ("cites=1",)}),
        ("fan-outs .*2 layers, .* 3 layers", {"samples": key, "hidden": (6, 6)}),
        ("samples", {"samples": "0123"}),
        ("vertices", {"samples": key, "relation": "cites", "of_type": None}),
    ]
    for named, options in refused:
        with pytest.raises((InputError, NotFoundError, CollectiveError), match=named):
            train(LoneCommunicator(), typed_config(dataset, "refused", **options))
    assert "refused" not in dataset.runs()


def test_what_a_graph_lacks_is_named(tmp_path: Path) -> None:
    dataset: Any = store(tmp_path / "catalog", "papers", tables(3))
    config = typed_config(dataset, "lacks", fanout=(3, 2))
    with pytest.raises(CollectiveError, match=r"--of-type"):
        train(LoneCommunicator(), config)
    with_topics(dataset)
    with pytest.raises(CollectiveError, match="--reverse"):
        train(LoneCommunicator(), typed_config(dataset, "lacks", fanout=(3, 2), reverse=True))
    train(LoneCommunicator(), config)
    with pytest.raises(InputError, match="of_type"):
        gnnloom.train(dataset)
    assert (
        gnnloom.predict("papers/lacks", model=config.model.name, on=dataset, catalog=dataset.path.parent).name
        == "lacks"
    )
    with pytest.raises(GnnloomError, match="smooth"):
        gnnloom.predict("papers/lacks", model=config.model.name, smooth="labels", catalog=dataset.path.parent)
    # Other features of a type are other data.
    (before,) = dataset.fitting("vertices", type="topic")
    gnnloom.features(dataset, feature=np.ones((COUNTS["topic"], 2)), of_type="topic", add=True)
    (other,) = (info.key for info in dataset.fitting("vertices", type="topic") if info.key != before.key)
    with pytest.raises(InputError, match="several vertex data of type topic"):
        gnnloom.train(dataset, mode="neighbor", of_type="paper", model=config.model.name)
    assert train(LoneCommunicator(), config.with_options(epochs=4))["epochs"] == 4
    with pytest.raises(CollectiveError, match="other vertex data of type topic"):
        train(LoneCommunicator(), config.with_options(epochs=5, vertex_data=(f"topic={other}",)))
    # Data of a type that papers do not depend on are not the run's.
    gnnloom.features(dataset, feature=np.ones((COUNTS["venue"], 2)), of_type="venue")
    assert train(LoneCommunicator(), config.with_options(epochs=5))["epochs"] == 5
    remove_artifact(dataset, "vertices", before.key, force=True)
    asked = PredictConfig.of_run(dataset, Run.open(dataset, "lacks"), model=config.model.name)
    with pytest.raises(CollectiveError, match=before.key):
        predict(LoneCommunicator(), asked)


def test_columns_of_tables_are_scaled_only_if_asked_to(tmp_path: Path) -> None:
    given = tables(6)
    for name in ("author", "paper"):
        given[name] = given[name].apply(lambda column: column.abs() if column.name.startswith("x") else column)
    dataset: Any = store(tmp_path / "catalog", "papers", given)
    gnnloom.features(dataset, feature=np.ones((COUNTS["topic"], 2)), of_type="topic")
    options: dict[str, Any] = {"fanout": (3, 2), "epochs": 1}
    losses = [
        train(LoneCommunicator(), typed_config(dataset, norm, feature_norm=norm, **options))["loss"]
        for norm in ("auto", "none", "row")
    ]
    assert losses[0] == losses[1] != losses[2]


def test_vertex_data_choose_between_graphs(tmp_path: Path) -> None:
    keys = []
    for ids in ("a", "b"):
        papers = pd.DataFrame({"id": [f"{ids}{number}" for number in range(9)], "x": range(9), "y": [0, 1, 2] * 3})
        papers["part"] = ["train", "valid", "test"] * 3
        cites = pd.DataFrame({"from": papers["id"], "to": papers["id"][::-1].to_list()})
        dataset: Any = gnnloom.ingest(
            "papers",
            relations={("paper", "cites", "paper"): (cites, ["from", "to"])},
            vertices={"paper": (papers, ["id", "x as feature", "y as label", "part as split"])},
            workers=0,
            add=True,
            catalog=tmp_path,
        )
        keys += [info.key for info in dataset.fitting("vertices") if info.key not in keys]
    with pytest.raises(CollectiveError, match=r"--vertex-data.*TYPE=KEY"):
        train(LoneCommunicator(), typed_config(dataset, "run"))
    for number, key in enumerate(keys):
        train(LoneCommunicator(), typed_config(dataset, f"run-{number}", vertex_data=(f"paper={key}",)))
        inputs = Run.open(dataset, f"run-{number}").inputs()
        assert inputs["vertices"] == key
        assert inputs["graph"] == dataset.find("vertices", key, type="paper").inputs["graph"]
