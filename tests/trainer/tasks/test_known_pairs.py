"""What is known to be true is never ranked above a pair, nor drawn as its negative: edges, and pairs of all splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnloom
from gnnloom.pipeline.links.hard_stage import draw_hard_negatives
from gnnloom.pipeline.links.options import DrawOptions, HardOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.runs.run import Run
from gnnloom.storage.shards import known_pairs
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.links.choices import NEGATIVE_SAMPLERS
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives import links as objectives
from gnnloom.trainer.tasks.objectives.pairs import TrainingPairs
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.trainer.training.rehearsal.unread_targets import UnreadTargets
from support.graphs import store_graph, store_vertices
from support.links import pairs_of, store_links
from support.lone import LoneCommunicator
from support.mpi import train_all
from support.pair_problems import pair_config, store_pairs
from support.partitions import store_partition
from support.problems import Problem, problem

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

N, RANKS, CLUSTER = 40, (1, 2, 3), InProcessCluster()
#: Dense graphs: most of what is drawn or ranked is known.
PROBLEMS = {
    given.name: given
    for given in (problem("directed", N, 700, symmetric=False), problem("undirected", N, 400, symmetric=True))
}
#: How the pairs are held out: not the training pairs; all pairs; none, because pairs are not edges of the graph; or
#: both directions of an edge together, in a directed graph in which half of the edges have their reverse.
WAYS: dict[str, dict[str, Any]] = {"kept": {}, "disjoint": {"disjoint": 0.4}, "others": {}}
WAYS["together"] = {"reciprocal": "together", **WAYS["disjoint"]}
CASES = [(name, way) for name in PROBLEMS for way in WAYS if (name, way) != ("undirected", "together")]
FILTERED: dict[str, Any] = {"filtered_ranks": True, "epochs": 1, "exclude_targets": False, "negatives": 3}


def ranks_of(way: str) -> tuple[int, ...]:
    return RANKS if way == "together" else RANKS[::2]


def store(catalog: Catalog, given: Problem, way: str) -> tuple[Dataset, Links]:
    """Store a graph with links, and shards for all numbers of ranks."""
    if way == "others":
        return store_pairs(catalog, given, *ranks_of(way))
    dataset = catalog.create(given.name)
    graph = store_graph(dataset, given.adjacency, symmetric=given.symmetric)
    store_vertices(dataset, given.feature, given.label, given.split)
    options = DrawOptions(valid=0.1, test=0.2, seed=1, **WAYS[way])
    links = draw_links(dataset, graph, options, CLUSTER)
    for ranks in ranks_of(way):
        message = dataset.graph(links.message_graph)
        shard_rows(dataset, store_partition(dataset, message, given.part(ranks), ranks), CLUSTER)
    return dataset, links


def known_of(dataset: Dataset, links: Links, *, splits: tuple[str, ...] = ("train", "valid", "test")) -> np.ndarray:
    """(N, N) bool, whether (source, target) is an edge of the message graph or a pair of some splits, or a loop."""
    known: np.ndarray = dataset.graph(links.message_graph).to_scipy().toarray().T != 0
    for split in splits:
        source, target = links.pair(split).T
        known[source, target] = True
    if links.symmetric or links.together:
        known |= known.T
    return known | np.eye(N, dtype=bool)


def ranked(scores: np.ndarray, known: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """(num_pairs,) ranks of targets among all vertices that are not known for their sources."""
    found = []
    for source, target in pairs:
        others = scores[source, ~known[source]]
        found.append(((others > scores[source, target]).sum() + (others >= scores[source, target]).sum()) / 2 + 1)
    return np.array(found)


class Filtered:
    """A catalog of all graphs and ways, and the results of runs on all numbers of ranks."""

    def __init__(self, folder: Path) -> None:
        self.of: dict[tuple[str, str], tuple[Dataset, Links]] = {}
        configs, self.results = [], dict[tuple[str, str, int], Any]()
        for name, way in CASES:
            catalog = Catalog(folder / way)
            self.of[name, way] = store(catalog, PROBLEMS[name], way)
            options = {"links": self.of[name, way][1].artifact.key, **FILTERED}
            configs += [
                (name, way, ranks, pair_config(catalog, name, f"on-{ranks}", ranks=ranks, **options))
                for ranks in ranks_of(way)
            ]
        for (name, way, ranks, _), result in zip(
            configs, train_all(folder, [config for *_, config in configs]), strict=True
        ):
            self.results[name, way, ranks] = result
        for *_, config in configs:
            if config.algorithm.ranks == 1:
                predict(LoneCommunicator(), PredictConfig.of_training(config, shards=None))


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Filtered:
    return Filtered(tmp_path_factory.mktemp("known"))


@pytest.mark.parametrize(("name", "way"), CASES)
def test_filtered_ranks_equal_brute_force_on_any_number_of_ranks(filtered: Filtered, name: str, way: str) -> None:
    dataset, links = filtered.of[name, way]
    vector = Run.open(dataset, "on-1").predictions().array("vector").read()
    pairs, known = links.pair("test"), known_of(dataset, links)
    assert known.mean() > 0.3
    if links.symmetric:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    ranks = ranked(vector @ vector.T, known, pairs)
    assert len(set(ranks)) > 5
    first, *others = (filtered.results[name, way, count]["filtered"] for count in ranks_of(way))
    assert others == [first] * len(others)
    assert first["mrr"] == pytest.approx((1 / ranks).mean(), rel=1e-14)
    assert [first[f"hits_{count}"] for count in (1, 3, 10)] == [(ranks <= count).mean() for count in (1, 3, 10)]


@pytest.mark.parametrize("way", WAYS)
def test_best_targets_are_not_known(filtered: Filtered, way: str) -> None:
    for name in (name for name in PROBLEMS if (name, way) in CASES):
        dataset, links = filtered.of[name, way]
        run = gnnloom.predict(f"{name}/on-1", catalog=dataset.path.parent)
        target, _ = run.top(np.arange(N), N)
        found = np.zeros((N, N), bool)
        source, place = np.nonzero(target >= 0)
        found[source, target[source, place]] = True
        np.testing.assert_array_equal(found, ~known_of(dataset, links))


def test_few_sources_at_once_give_the_same_ranks(filtered: Filtered, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, links = filtered.of["undirected", "disjoint"]
    monkeypatch.setattr(objectives, "SOURCES_AT_ONCE", 3)
    monkeypatch.setattr(known_pairs, "_ENTRIES", 17)
    monkeypatch.setattr(known_pairs, "_PAIRS", 7)
    monkeypatch.setattr(known_pairs, "_CELLS", 4)
    options = {"links": links.artifact.key, **FILTERED}
    result = train(LoneCommunicator(), pair_config(Catalog(dataset.path.parent), "undirected", "few", **options))
    assert result["filtered"] == filtered.results["undirected", "disjoint", 1]["filtered"]


@pytest.mark.parametrize("held_out", [True, False])
def test_a_renumbering_of_an_undirected_graph_changes_no_filtered_figure(tmp_path: Path, held_out: bool) -> None:
    given, figures = PROBLEMS["undirected"], []
    edges = np.random.default_rng(2).permutation(pairs_of(given.adjacency, symmetric=True))
    splits = dict(zip(("test", "valid", "train"), np.split(edges, [40, 60]), strict=True))
    for number, order in enumerate((np.arange(N), np.arange(N)[::-1], np.random.default_rng(3).permutation(N))):
        catalog = Catalog(tmp_path / str(number))
        dataset = catalog.create("web")
        back = np.argsort(order)
        graph = store_graph(dataset, given.adjacency.tocsr()[back][:, back], symmetric=True)
        store_vertices(dataset, given.feature[back], given.label[back], given.split[back])
        arrays = {f"{split}/pair": np.sort(order[pairs], 1) for split, pairs in splits.items()}
        message, facts = graph, {"edges": {"train/pair": len(splits["train"])}, "held_out_entries": 0}
        if held_out:
            kept = given.adjacency.tolil(copy=True)
            for source, target in np.concatenate([splits["test"], splits["valid"]]):
                kept[source, target] = kept[target, source] = 0
            matrix = kept.tocsr()
            matrix.eliminate_zeros()
            message = store_graph(dataset, matrix[back][:, back], symmetric=True)
        links = store_links(dataset, graph, arrays, message.artifact.key, **facts)
        shard_rows(dataset, store_partition(dataset, message, np.zeros(N, np.int32), 1), CLUSTER)
        # The vectors are those of the initial parameters: only the order of the sums differs.
        options = {"lr": 1e-30, "links": links.artifact.key, **FILTERED}
        figures.append(train(LoneCommunicator(), pair_config(catalog, "web", "run", **options))["filtered"])
    assert 0 < figures[0]["mrr"] < 1
    for each in figures[1:]:
        assert each == pytest.approx(figures[0], rel=1e-12)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(
            *case, marks=() if case in {("directed", "together"), ("undirected", "disjoint")} else pytest.mark.long
        )
        for case in CASES
    ],
)
def test_strict_negatives_are_not_known_in_training_and_avoid_no_pair_to_judge_by(
    filtered: Filtered, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    dataset, links = filtered.of[name, way]
    known = known_of(dataset, links, splits=("train",))
    judged = known_of(dataset, links) & ~known
    catalog, drawn, whole = Catalog(dataset.path.parent), list[Any](), objectives.Links.step_loss

    def recorded(self: Any, labels: Any, pairs: Any, *others: Any) -> Any:
        drawn.append(pairs)
        return whole(self, labels, pairs, *others)

    monkeypatch.setattr(objectives.Links, "step_loss", recorded)
    for sampler in NEGATIVE_SAMPLERS:
        drawn.clear()
        options: dict[str, Any] = {"negatives": 40, "negative_sampler": sampler, "strict_negatives": True, "epochs": 1}
        options |= {"links": links.artifact.key, "exclude_targets": False}
        train(LoneCommunicator(), pair_config(catalog, name, f"strict-{sampler}", **options))
        sources = [
            np.repeat(each.source[:, None], 40, 1) if each.drawn_source is None else each.drawn_source for each in drawn
        ]
        source, target = (np.concatenate(each).ravel() for each in (sources, [each.negative for each in drawn]))
        # After 16 more draws, the last one stands: so are a few of sources that have most pairs.
        assert known[source, target].sum() <= 3 * (known[source].mean(1) ** 17).sum() + 2, sampler
        # Each of what is not known is drawn equally often, whether a model is judged by it or not.
        if sampler != "degree":
            expected = judged[source].sum(1) / (~known)[source].sum(1)
            assert judged[source, target].mean() == pytest.approx(expected.mean(), rel=0.1), sampler


@pytest.mark.parametrize("name", PROBLEMS)
def test_hard_negatives_are_not_pairs_that_are_no_edges(tmp_path: Path, name: str) -> None:
    given = PROBLEMS[name]
    dataset, links = store_pairs(Catalog(tmp_path), given, 1)
    hard = draw_hard_negatives(dataset, links, HardOptions(negatives=10), CLUSTER)
    known = known_of(dataset, links)
    for split in ("valid", "test"):
        source, target = links.pair(split).T
        assert not known[source[:, None], hard.negative(split)].any()
        assert not known[hard.negative_source(split), target[:, None]].any()


def test_the_forecast_counts_the_reverses_that_steps_exclude(tmp_path: Path) -> None:
    catalog, counts = Catalog(tmp_path), []
    for name, way in (("directed", "kept"), ("undirected", "kept"), ("directed", "both")):
        dataset = catalog.create(f"{name}-{way}")
        graph = store_graph(dataset, PROBLEMS[name].adjacency, symmetric=name == "undirected")
        options = DrawOptions(reciprocal="together" if way == "both" else "apart")
        source = TrainingPairs(links := draw_links(dataset, graph, options, CLUSTER), ReadCounter())
        excluded = np.count_nonzero(source.read(0, source.num_pairs)[1]) * (2 if links.symmetric else 1)
        targets = UnreadTargets(
            source.num_pairs, source.num_entries, [0.25, 0.75], [(N, N)] * 2, Place(), weighted=False
        )
        assert len(targets) == pytest.approx(excluded, abs=0.05 * excluded)
        counts.append(excluded / links.num_pairs["train"])
    assert counts[0] < 1.2 < counts[2] < counts[1]
