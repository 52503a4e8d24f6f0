"""`gnnloom predict --pairs` and `--top`, and the same in Python: scores of any pairs from a trained run."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.shards import known_pairs
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.job import launch
from gnnloom.trainer.training import best_targets, pair_scores
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.interop import given_vertices
from support.lone_training import install
from support.pair_runs import NUM_VERTICES, TRAIN, call, drawn_edges, name_of, shard, shown, store_named, write_csv

#: Before a fixture replaces it.
START_RANKS = launch._launch


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table_of(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Runs on an undirected graph with names, and on a directed one with numbers as ids that have gaps."""
    folder = tmp_path_factory.mktemp("pairs")
    root = folder / "catalog"
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        store_named(root, folder)
        call(root, "train", "named/run", "--task", "link", "--decoder", "distmult", *TRAIN)
        call(root, "train", "named/bpr", "--task", "link", "--loss", "bpr", *TRAIN)
        directed = drawn_edges(2) * 10
        edges = write_csv(folder / "directed.csv", directed.tolist())
        call(root, "ingest", "directed", edges, "--ids", "compact", "--workers", "0")
        call(root, "ingest", "rated", edges, "--ids", "compact", "--workers", "0")
        for name, values in (("class", directed.sum(1) // 10 % 3), ("number", directed[:, 0] / 100)):
            dataset = "directed" if name == "class" else "rated"
            split = np.arange(len(directed)) % 4
            options = ["file", "--values", name]
            for part, numbers in (("train", (0, 1)), ("valid", (2,)), ("test", (3,))):
                chosen = np.isin(split, numbers)
                rows = [[*pair, value] for pair, value in zip(directed[chosen], values[chosen], strict=True)]
                options += [f"--{part}", write_csv(folder / f"{name}-{part}.csv", rows)]
            shard(root, dataset, *options)
            call(root, "train", f"{dataset}/run", "--task", f"edge-{name}", *TRAIN)
        yield root


def expected_scores(run: gnnloom.Run) -> NDArray[Any]:
    """(num_vertices, num_vertices) of all pairs, computed here."""
    vector = run.predictions()
    weight = run.state_dict().get("decoder.weight")
    scores: NDArray[Any] = vector * (1 if weight is None else weight.numpy()) @ vector.T
    return scores


def opened(root: Path, name: str, decoder: str | None = None) -> gnnloom.Run:
    run: gnnloom.Run = gnnloom.predict(name, catalog=root, decoder=decoder)
    return run


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loop over pieces takes several turns."""
    install(monkeypatch)
    for name, value in (("SOURCES_AT_ONCE", 7), ("_ROWS", 11)):
        monkeypatch.setattr(best_targets, name, value)
    for name, value in (("_CELLS", 16), ("_ENTRIES", 40), ("_PAIRS", 13)):
        monkeypatch.setattr(known_pairs, name, value)
    monkeypatch.setattr(pair_scores, "_PAIRS", 5)
    monkeypatch.setattr(given_vertices, "_AT_ONCE", 16)
    monkeypatch.setattr(given_vertices, "_IDS", 6)
    monkeypatch.setattr(given_vertices, "_LINES", 3)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz", ".npy"])
def test_pairs_of_a_file_are_scored_in_its_order_by_their_names(root: Path, tmp_path: Path, suffix: str) -> None:
    run, rng = opened(root, "named/run"), np.random.default_rng(3)
    pairs = rng.integers(0, NUM_VERTICES, (40, 2))
    pairs[7], pairs[8] = pairs[6], pairs[6][::-1]
    file = write_csv(tmp_path / "pairs.csv", [["src", "dst"], *[[name_of(u), name_of(v)] for u, v in pairs.tolist()]])
    out = tmp_path / f"scores{suffix}"
    found = call(root, "predict", "named/run", "--pairs", file, "--out", str(out))
    assert (found["pairs"], found["out"], len(found["first"])) == (40, str(out), 10)
    expected = expected_scores(run)[tuple(pairs.T)]
    probability = 1 / (1 + np.exp(-expected))
    if suffix == ".npy":
        np.testing.assert_allclose(np.load(out), expected, rtol=1e-12)
        return
    if suffix == ".npz":
        table = table_of(out)
    elif suffix == ".parquet":
        table = {name: np.array(values) for name, values in pyarrow.parquet.read_table(out).to_pydict().items()}
    else:
        rows = rows_of(out)
        table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    for name, value in (("score", expected), ("probability", probability)):
        np.testing.assert_allclose(table[name].astype(np.float64), value, rtol=1e-12)
    for end, vertices in (("source", pairs[:, 0].tolist()), ("target", pairs[:, 1].tolist())):
        assert table[end].tolist() == (vertices if suffix == ".npz" else [*map(name_of, vertices)])
    first = found["first"][0]
    assert (first["source"], first["score"]) == (name_of(pairs[0, 0]), pytest.approx(expected[0], rel=1e-12))
    np.testing.assert_array_equal(run.score(pairs)[:10], [row["score"] for row in found["first"]])
    if suffix == ".parquet":
        pandas = pytest.importorskip("pandas")
        frame = pandas.read_parquet(out)
        pandas.testing.assert_frame_equal(run.score_frame(frame[["source", "target"]]), frame)
        with pytest.raises(InputError, match="pairs, number 3: 'nobody' "):
            run.score_frame([[name_of(1), name_of(2)], [name_of(3), "nobody"]])
        # In memory as from the file, in every form of pairs.
        given = frame[["source", "target"]]
        for same in (given, given.to_numpy(), given.to_numpy().tolist(), file):
            pandas.testing.assert_frame_equal(gnnloom.predict(run, pairs=same), frame)
        np.testing.assert_array_equal(run.score(given), run.score(pairs))
        with pytest.raises(InputError, match=r"pairs: expected \(num_pairs, 2\)"):
            gnnloom.predict(run, pairs=frame)


def best_of(scores: NDArray[Any], adjacency: Any, source: int, count: int) -> list[int]:
    """By a sort of the scores of all vertices but those with an edge from the source."""
    linked = adjacency[:, [source]].toarray().ravel() != 0
    candidates = np.setdiff1d(np.flatnonzero(~linked), [source])
    return candidates[np.lexsort((candidates, -scores[source, candidates]))][:count].tolist()  # type: ignore[no-any-return]


def test_columns_of_a_table_of_pairs_are_named(root: Path, tmp_path: Path) -> None:
    header, row = ["number", "buyer", "amount", "seller"], ["1", name_of(3), "2.5", name_of(5)]
    table, plain = write_csv(tmp_path / "table.csv", [header, row]), write_csv(tmp_path / "plain.csv", [row[1::2]])
    scores = []
    for file in (f"{table}:buyer,seller", plain):
        call(root, "predict", "named/run", "--pairs", file, "--out", str(tmp_path / "out.csv"))
        scores.append(rows_of(tmp_path / "out.csv"))
    assert scores[0] == scores[1]
    for columns, message in ((":buyer", "two columns"), (":buyer,nobody", "no column nobody"), ("", "SOURCE,TARGET")):
        with pytest.raises(InputError, match=message):
            gnnloom.predict("named/run", pairs=f"{table}{columns}", out=tmp_path / "out.csv", catalog=root)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("named/run", 4), ("named/bpr", 3), ("rated/run", 5)])
def test_the_best_targets_are_those_of_a_sort_and_not_linked(root: Path, tmp_path: Path, name: str, count: int) -> None:
    run, dataset = opened(root, name), Catalog(root)[name.partition("/")[0]]
    links = dataset.links()
    adjacency = dataset.graph(links.graph).to_scipy()
    assert dataset.graph(links.message_graph).nnz < adjacency.nnz
    every = np.stack(np.meshgrid(np.arange(NUM_VERTICES), np.arange(NUM_VERTICES), indexing="ij"), 2).reshape(-1, 2)
    scores = run.score(every).reshape(NUM_VERTICES, NUM_VERTICES)
    call(root, "predict", name, "--top", str(count), "--out", str(tmp_path / "best.csv"))
    rows = rows_of(tmp_path / "best.csv")
    best = [best_of(scores, adjacency, source, count) for source in range(NUM_VERTICES)]
    called = name_of if dataset.graph(links.graph).has_names else lambda vertex: str(10 * vertex)
    assert [(row["source"], row["target"]) for row in rows] == [
        (called(source), called(target)) for source, targets in enumerate(best) for target in targets
    ]
    vertices = np.array([5, 3, 5, *range(20)])
    target, score = run.top(vertices, count)
    assert target.tolist() == [best[vertex] for vertex in vertices]
    np.testing.assert_allclose(score, np.take_along_axis(scores[vertices], target, 1), rtol=1e-12)
    pandas = pytest.importorskip("pandas")
    frame, file = run.top_frame([called(5), called(3)], count), pandas.read_csv(tmp_path / "best.csv", dtype=str)
    wanted = pandas.concat([file[file["source"] == called(vertex)] for vertex in (5, 3)])
    assert frame["source"].astype(str).tolist() == wanted["source"].tolist()
    assert frame["target"].astype(str).tolist() == wanted["target"].tolist()
    np.testing.assert_allclose(frame[column := frame.columns[2]], wanted[column].astype(float), rtol=1e-12)
    names, same = run.top([called(5), called(3)], count)
    assert [each for each in names.ravel().tolist() if each] == wanted["target"].tolist()
    np.testing.assert_array_equal(same, run.top([5, 3], count)[1])
    pandas.testing.assert_frame_equal(gnnloom.predict(run, top=count, of=[called(5), called(3)]), frame)
    column = "number" if name == "rated/run" else "score"
    assert set(rows[0]) >= {column}
    assert ("probability" in rows[0]) == (name == "named/run")


def test_listed_vertices_are_found_by_name_in_their_order_and_shown(root: Path, tmp_path: Path) -> None:
    listed = [9, 2, 40, 2]
    lines = ["# users", *map(name_of, listed[:2]), "", f"  {name_of(listed[2])}  ", name_of(listed[3])]
    (tmp_path / "of.txt").write_text("\n".join(lines), encoding="utf-8")
    arguments = ("predict", "named/run", "--top", "3", "--of", str(tmp_path / "of.txt"))
    first = call(root, *arguments)["first"]
    assert [row["source"] for row in first] == [name_of(source) for source in listed for _ in range(3)][:10]
    text = shown(root, *arguments)
    assert first[0]["source"] in text
    assert f"{first[0]['score']:.4g}" in text
    opened(root, "named/run")
    gnnloom.predict("named/run", top=3, of=tmp_path / "of.txt", out=tmp_path / "best.npz", catalog=root)
    np.testing.assert_array_equal(table_of(tmp_path / "best.npz")["source"], np.repeat(listed, 3))


def test_files_of_pairs_and_of_vertices_say_how_they_are_read(root: Path, tmp_path: Path) -> None:
    pairs = write_csv(tmp_path / "pairs.csv", [[name_of(1), name_of(2)]])
    (tmp_path / "of.txt").write_text(f"# users\n{name_of(1)}\n", encoding="utf-8")
    for options, told in (
        (["--pairs", pairs], "text, fields between commas; no header"),
        (["--top", "1", "--of", str(tmp_path / "of.txt")], "a vertex in each line; 1 comment before the first"),
    ):
        words = ["--catalog", str(root), "predict", "named/run", *options]
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
        assert told in result.stderr
        assert "ids are names, as in the graph" in result.stderr
        assert told not in CliRunner().invoke(cli, [*words, "--quiet"]).stderr


def test_fewer_targets_than_wanted_are_all_that_there_are(root: Path, tmp_path: Path) -> None:
    run, dataset = opened(root, "named/run"), Catalog(root)["named"]
    target, score = run.top([0, 1], NUM_VERTICES + 5)
    adjacency = dataset.graph(dataset.links().graph).to_scipy()
    for vertex in (0, 1):
        # The self loop is one of its entries.
        there = NUM_VERTICES - adjacency[:, [vertex]].nnz
        assert (target[vertex] >= 0).sum() == there
        assert (target[vertex, there:] == -1).all()
        assert np.isneginf(score[vertex, there:]).all()
    found = call(root, "predict", "named/run", "--top", str(10**12), "--out", str(tmp_path / "best.npy"))
    assert found["pairs"] == NUM_VERTICES**2 - adjacency.nnz


def test_pairs_get_a_class_or_a_number_by_their_ids(root: Path, tmp_path: Path) -> None:
    pairs = np.random.default_rng(4).integers(0, NUM_VERTICES, (30, 2))
    # A column that is not needed, such as the values of the pairs to test with.
    file = write_csv(tmp_path / "pairs.csv", [[10 * u, 10 * v, 1.5] for u, v in pairs.tolist()])
    run = opened(root, "directed/run")
    call(root, "predict", "directed/run", "--pairs", file, "--out", str(tmp_path / "classes.npz"))
    found, scores = table_of(tmp_path / "classes.npz"), run.score(pairs)
    state, vector = run.state_dict(), run.predictions()
    hidden = np.maximum(0, vector[pairs[:, 0]] * vector[pairs[:, 1]] @ weights(state, 0)[0].T + weights(state, 0)[1])
    np.testing.assert_allclose(scores, hidden @ weights(state, 1)[0].T + weights(state, 1)[1], rtol=1e-10, atol=1e-13)
    # The command scores the file in pieces, and on some processors, a product's bits depend on its number of rows.
    np.testing.assert_allclose(found["score"], scores, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(found["class"], scores.argmax(1))
    np.testing.assert_array_equal(found["source"], pairs[:, 0] * 10)
    call(root, "predict", "rated/run", "--pairs", file, "--out", str(tmp_path / "numbers.csv"))
    numbers = opened(root, "rated/run").score(pairs)
    assert numbers.shape == (30,)
    np.testing.assert_allclose([float(row["number"]) for row in rows_of(tmp_path / "numbers.csv")], numbers, rtol=1e-12)


def weights(state: Any, layer: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weight and bias of a layer of the perceptron."""
    weight, bias = (state[f"decoder.layers.{layer}.{name}"].numpy() for name in ("weight", "bias"))
    return weight, bias


@pytest.mark.parametrize(
    ("run", "options", "message"),
    [
        ("named/run", ["--pairs", "unknown.csv"], r"unknown.csv, row 1: 'nobody' is not a vertex of the graph"),
        ("directed/run", ["--pairs", "gap.csv"], r"gap.csv, row 7: '15' is not a vertex of the graph"),
        ("named/run", ["--pairs", "missing.csv"], r"missing.csv: there is no such file"),
        ("named/run", ["--top", "2", "--of", "missing.txt"], r"missing.txt: no such file"),
        ("named/run", ["--top", "2", "--of", "of.txt"], r"of.txt, line 3: 'nobody' is not a vertex of the graph"),
        ("named/run", ["--top", "2", "--of", "empty.txt"], r"empty.txt: no vertices"),
        ("named/run", ["--top", "2", "--pairs", "unknown.csv"], r"pairs and top: choose one of them"),
        ("named/run", ["--of", "of.txt"], r"of: .* top"),
        ("directed/run", ["--top", "2"], r"task edge-class: its pairs have a score for each class"),
        ("vertices/run", ["--top", "2"], r"predicts vertices, not pairs; train with --task link, edge-class"),
        ("vertices/run", ["--pairs", "gap.csv"], r"predicts vertices, not pairs"),
        ("named/run", ["--top", "2", "--out", "best.txt"], r"best.txt: expected a name that ends in"),
        ("named/run", ["--smooth", "correct"], r"smooth: works on one class per vertex .*, but this run has task link"),
    ],
)
def test_what_cannot_be_scored_is_one_error(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, options: list[str], message: str
) -> None:
    write_csv(tmp_path / "unknown.csv", [[name_of(1), name_of(2)], ["nobody", name_of(2)]])
    write_csv(tmp_path / "gap.csv", [[10, 20]] * 7 + [[20, 15], [15, 20]])
    (tmp_path / "of.txt").write_text(f"# users\n{name_of(1)}\nnobody\n", encoding="utf-8")
    (tmp_path / "empty.txt").write_text("# none\n\n", encoding="utf-8")
    if run.startswith("vertices"):
        root = tmp_path / "catalog"
        call(root, "generate", "vertices", "sbm", "--vertices", "50", "--edges", "200", "--workers", "0")
        call(root, "partition", "vertices", "--parts", "1", "--method", "block", "--workers", "0")
        call(root, "shard", "vertices", "--parts", "1", "--workers", "0")
        call(root, "train", "vertices/run", "--epochs", "1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InputError, NotFoundError, CollectiveError), match=message):
        call(root, "predict", run, *options)
    assert not (tmp_path / "best.txt").exists()


def test_a_first_line_of_other_words_names_the_columns_if_the_option_says_so(root: Path, tmp_path: Path) -> None:
    pairs = [[3, 9], [12, 4], [0, 7]]
    named = [[name_of(u), name_of(v)] for u, v in pairs]
    file = write_csv(tmp_path / "pairs.csv", [["user", "item"], *named])
    with pytest.raises(InputError, match=r"pairs.csv, row 0: 'user' .* `--header`"):
        call(root, "predict", "named/run", "--pairs", file)
    with pytest.raises(InputError, match=r"pairs.csv, row 0: 'user' .* `header=True`"):
        gnnloom.predict("named/run", catalog=root, pairs=file)
    run = opened(root, "named/run")
    found = call(root, "predict", "named/run", "--pairs", file, "--header")
    expected = run.score(np.array(pairs))
    np.testing.assert_array_equal([row["score"] for row in found["first"]], expected)
    frame = gnnloom.predict("named/run", catalog=root, pairs=file, header=True)
    np.testing.assert_array_equal(frame["score"], expected)
    # Without a doubt about the first line, the message does not name the option.
    for rows, options in (
        ([["user", "item"], *named], ["--no-header"]),
        ([["source", "target"], ["nobody", name_of(1)], *named], []),
        ([named[0], ["user", "item"]], []),
    ):
        write_csv(tmp_path / "pairs.csv", rows)
        with pytest.raises(InputError, match=r"row \d: '(user|nobody)' is not a vertex of the graph$"):
            call(root, "predict", "named/run", "--pairs", file, *options)
    with pytest.raises(InputError, match="header: "):
        call(root, "predict", "named/run", "--top", "2", "--header")
    with pytest.raises(InputError, match="header: "):
        gnnloom.predict("named/run", catalog=root, pairs=named, header=True)


def test_python_refuses_what_are_no_pairs_or_vertices(root: Path) -> None:
    run = opened(root, "named/run")
    assert run.score(np.empty((0, 2), np.int64)).shape == (0,)
    assert [each.shape for each in run.top(np.empty(0, np.int64), 3)] == [(0, 3), (0, 3)]
    for pairs in ([[0, NUM_VERTICES]], [[-1, 0]]):
        with pytest.raises(InputError, match="is not one of the 60 vertices of the graph"):
            run.score(pairs)
    for wrong in ([0, 1], [[0.5, 1.0]], [[0, 1, 2]]):
        with pytest.raises(InputError, match=r"pairs: .*\(num_pairs, 2\)"):
            run.score(wrong)
    with pytest.raises(InputError, match="is not one of the 60 vertices"):
        run.top([NUM_VERTICES], 2)
    with pytest.raises(InputError, match=r"vertices: .*\(num_vertices,\)"):
        run.top([[1]], 2)
    with pytest.raises(InputError, match="top: "):
        run.top([1], 0)
    with pytest.raises(InputError, match="vertices, number 1: 'nobody' "):
        run.top([name_of(1), "nobody"], 2)


#: As the manual shows it.
BILINEAR = """
import torch
from gnnloom.trainer.links.decoder import Decoder

class Bilinear(Decoder):
    gives_several = False

    def create_parameters(self):
        self.linear = torch.nn.Linear(self.dim, self.dim, bias=False)

    def forward(self, source, target):
        return (self.linear(source) * target).sum(1)
"""


def test_a_decoder_of_the_user_tells_pairs_from_their_reverses(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_bilinear.py").write_text(BILINEAR)
    monkeypatch.syspath_prepend(str(tmp_path))
    call(root, "train", "named/own", "--task", "link", "--decoder", "own_bilinear:Bilinear", *TRAIN)
    run, dataset = opened(root, "named/own", "own_bilinear:Bilinear"), Catalog(root)["named"]
    vector, weight = run.predictions(), run.state_dict()["decoder.linear.weight"].numpy()
    scores = vector @ weight.T @ vector.T
    pairs = np.random.default_rng(5).integers(0, NUM_VERTICES, (30, 2))
    np.testing.assert_allclose(run.score(pairs), scores[tuple(pairs.T)], rtol=1e-10, atol=1e-14)
    assert np.abs(scores - scores.T).max() > 1e-3 * np.abs(scores).max()
    adjacency = dataset.graph(dataset.links().graph).to_scipy()
    target, _ = run.top([4, 50], 3)
    assert target.tolist() == [best_of(scores, adjacency, vertex, 3) for vertex in (4, 50)]


@pytest.mark.slow
def test_vectors_whose_checkpoint_is_gone_are_not_scored_with_another(root: Path) -> None:
    call(root, "train", "named/longer", "--task", "link", "--decoder", "distmult", *TRAIN)
    run = opened(root, "named/longer")
    before = run.score([[0, 1]])
    call(root, "train", "named/longer", "--epochs", "9", "--keep", "1", "--checkpoint-every", "1")
    with pytest.raises(NotFoundError, match="the run has no predictions"):
        run.score([[0, 1]])
    assert opened(root, "named/longer").score([[0, 1]]) != before
    (run.path / "checkpoint" / "00000009").rename(run.path / "checkpoint" / "00000008")
    with pytest.raises(NotFoundError, match="epoch 9"):
        run.score([[0, 1]])


def test_vectors_are_exported_with_the_ids(root: Path, tmp_path: Path) -> None:
    run = opened(root, "named/run")
    call(root, "export", "named/run", "predictions", "--out", str(tmp_path / "vectors.parquet"))
    table = pyarrow.parquet.read_table(tmp_path / "vectors.parquet").to_pydict()
    assert table["vertex"] == [name_of(vertex) for vertex in range(NUM_VERTICES)]
    np.testing.assert_array_equal(table["vector"], run.predictions())
    with pytest.raises(NotFoundError, match="`gnnloom predict --pairs FILE`"):
        call(root, "export", "named/run", "scores", "--out", str(tmp_path / "scores.npy"))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [*(pytest.param(ranks, marks=pytest.mark.long) for ranks in (2, 3)), 4])
def test_ranks_find_what_one_process_finds(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    run = opened(root, "named/run")
    vertices = np.array([5, 3, 5, 59, *range(20)])
    whole = run.top(vertices, NUM_VERTICES)
    call(root, "predict", "named/run", "--top", "4", "--out", str(tmp_path / "one.npz"))
    # From here on, ranks are started.
    monkeypatch.setattr(launch, "_launch", START_RANKS)
    if ranks < 4:
        for found, expected in zip(run.top(vertices, NUM_VERTICES, ranks=ranks), whole, strict=True):
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == expected.dtype
        return
    out = str(tmp_path / "ranks.npz")
    found = call(root, "predict", "named/run", "--top", "4", "--ranks", str(ranks), "--out", out)
    assert found["reused"]
    tables = [table_of(tmp_path / f"{name}.npz") for name in ("one", "ranks")]
    assert tables[0].keys() == tables[1].keys()
    for name, values in tables[0].items():
        np.testing.assert_array_equal(tables[1][name], values)
    with pytest.raises(InputError, match="is not one of the 60 vertices"):
        run.top([NUM_VERTICES], 2, ranks=2)
