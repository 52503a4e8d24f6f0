"""Failed commands leave nothing, nothing is removed without asking, and a graph is chosen by what distinguishes it."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import gnnloom
from gnnloom.storage import Catalog, GnnloomError
from gnnloom.storage.errors import BudgetError, ExistsError, InputError, NotFoundError
from gnnloom.workflows.cli.data import catalog as catalog_module
from gnnloom.workflows.cli.main import cli
from support.small_catalogs import store_small_dataset


def invoke(catalog: Catalog, *arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(catalog.root), *arguments], input=answer)


def succeed(catalog: Catalog, *arguments: str) -> dict[str, Any]:
    done = invoke(catalog, *arguments, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    content = json.loads(done.stdout)
    assert isinstance(content, dict)
    return content


def refused(catalog: Catalog, *arguments: str) -> GnnloomError:
    done = invoke(catalog, *arguments)
    assert isinstance(done.exception, GnnloomError), (done.output, done.exception)
    return done.exception


@pytest.fixture
def edges(tmp_path: Path) -> str:
    (tmp_path / "edges.txt").write_text("".join(f"{v} {v + 3}\n" for v in range(0, 60, 3)))
    return str(tmp_path / "edges.txt")


def test_a_failed_ingest_leaves_no_dataset_and_no_catalog(
    catalog: Catalog, tmp_path: Path, edges: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.txt").write_text("0 1\nx y\n")
    assert isinstance(refused(catalog, "ingest", "web", str(tmp_path / "bad.txt"), "--workers", "0"), InputError)
    assert not catalog.root.exists()
    with monkeypatch.context() as patch:
        patch.setattr("gnnloom.pipeline.ingest.projection.DISK_SHARE", 0)
        assert isinstance(refused(catalog, "generate", "web", "rmat", "--scale", "12", "--workers", "0"), BudgetError)
    assert not catalog.root.exists()
    # A dataset that was there before stays, with what it has.
    succeed(catalog, "ingest", "web", edges, "--workers", "0")
    refused(catalog, "ingest", "web", str(tmp_path / "bad.txt"), "--add", "--workers", "0")
    assert [info.state for info in catalog["web"].artifacts()] == ["complete"]


def test_ids_that_no_edge_has_are_pointed_out(catalog: Catalog, edges: str) -> None:
    kept = invoke(catalog, "ingest", "kept", edges, "--workers", "0")
    assert "note: at least 21 of the 61 vertices have no edge; --ids compact leaves them out" in kept.stderr
    assert "note" not in invoke(catalog, "ingest", "dense", edges, "--ids", "compact", "--workers", "0").stderr


@pytest.mark.parametrize(
    ("lines", "options", "words"),
    [
        # Both directions of an edge are not a repetition.
        ("0 1 2\n1 0 2\n", ["--undirected"], []),
        ("0 1 2\n0 1 3\n2 1 3\n", [], ["1 entry repeats"]),
        ("0 1 2\n0 1 3\n1 0 5\n", ["--undirected"], ["2 entries repeat"]),
        ("0 1 2\n0 1 3\n", ["--merge", "max"], []),
        ("0 1 -2\n1 0 3\n2 2 1\n", [], ["1 of the 5 stored weights"]),
        ("0 1 -2\n1 0 -2\n", ["--undirected"], ["2 of the 4 stored weights"]),
        ("1 2 1\n2 3 1\n3 4 1\n", [], ["ids begin at 1, so vertex 0 has no edge"]),
        ("1 2 1\n2 3 1\n3 4 1\n", ["--ids", "compact"], []),
        ("2 4 1\n4 3 1\n3 2 1\n", [], ["ids begin at 2, so the vertices 0 to 1 have no edge"]),
        ("1 0 1\n2 1 1\n", [], []),
        # Every edge has its reverse with the same weight; loops have none.
        ("0 1 2\n1 0 2\n0 0 7\n", [], ["the same weight: --undirected stores the same graph, and links hold both"]),
        ("0 1 1\n1 0 1\n1 0 1\n0 1 1\n", ["--merge", "sum"], ["2 entries repeat", "weight: links hold both"]),
        ("0 1 2\n1 0 3\n", [], []),
        ("0 1 2\n1 0 2\n0 2 2\n", [], []),
        # Sums that are equal if the two ends are not mixed.
        ("0 1 1\n1 2 1\n2 0 1\n", [], []),
        ("0 0 5\n2 2 7\n", [], []),
    ],
)
def test_what_the_sort_finds_about_edges_is_pointed_out(
    catalog: Catalog, tmp_path: Path, lines: str, options: list[str], words: list[str]
) -> None:
    (tmp_path / "weighted.txt").write_text(lines)
    command = ["ingest", "web", str(tmp_path / "weighted.txt"), "--weights", "--quiet", "--workers", "0", *options]
    done = invoke(catalog, *command)
    assert done.exit_code == 0, done.output
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


def test_notes_are_printed_once_and_are_in_the_json_and_in_the_log_of_python(
    catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "both.txt").write_text("1 2\n2 1\n")
    (tmp_path / "label.txt").write_text("0\n255\n1\n")
    where, words = ("--workers", "0", "--json", "--quiet"), ["ids begin at 1", "every edge", "253 of 256 classes"]
    done = [
        invoke(catalog, "ingest", "web", str(tmp_path / "both.txt"), *where),
        invoke(catalog, "features", "web", "--label", str(tmp_path / "label.txt"), *where),
    ]
    notes = [note for each in done for note in json.loads(each.stdout)["notes"]]
    assert [word in note for word, note in zip(words, notes, strict=True)] == [True] * 3
    lines = [line for each in done for line in each.stderr.splitlines() if line.startswith("note: ")]
    assert lines == [f"note: {note}" for note in notes]
    monkeypatch.setattr(logging.getLogger("gnnloom"), "propagate", True)
    with caplog.at_level(logging.WARNING, "gnnloom"):
        gnnloom.ingest("web", tmp_path / "both.txt", catalog=catalog.root, workers=0)
        gnnloom.features("web", label=tmp_path / "label.txt", catalog=catalog.root, workers=0)
    assert [word in message for word, message in zip(words, caplog.messages, strict=True)] == [True] * 3
    assert "undirected=True stores the same graph" in caplog.messages[1]
    assert not any("--" in message for message in caplog.messages)
    assert 'ids="compact" leaves it out' in caplog.messages[0]


def test_what_a_killed_ingest_began_is_kept(catalog: Catalog, edges: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gnnloom.pipeline.ingest.stage.sort_edges", interrupted)
        assert invoke(catalog, "ingest", "web", edges, "--workers", "0").exit_code == 130
    assert [info.state for info in catalog["web"].artifacts()] == ["incomplete"]
    assert succeed(catalog, "ingest", "web", edges, "--workers", "0")["edges_in"] == 20


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("train web --model torch_geometric.nn.GraphSAGE", "a class of yours, as package.module:NAME"),
        ("train web --model sagee", "Did you mean 'sage'?"),
        ("links web file --train x", "valid and test: no pairs; give them with --valid FILE and --test FILE"),
        ("predict web/first", "dataset web has no run first; train one with `gnnloom train web/first`"),
        ("propagate web --steps 2", "(`--ranks`)"),
        ("train web --mode rows --fanout 5", "fanout"),
        ("partition web --parts 9999", "the graph has 61 vertices; ask for no more parts than that"),
        ("shard web --parts 2", "web has no partition with parts=2; make one with `gnnloom partition web --parts 2`"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(catalog: Catalog, edges: str, command: str, found: str) -> None:
    succeed(catalog, "ingest", "web", edges, "--workers", "0")
    done = invoke(catalog, *command.split())
    assert found in " ".join(f"{done.output} {done.exception}".split())


@pytest.mark.parametrize("command", ["ls", "tree", "du", "gc"])
def test_a_catalog_that_does_not_exist_is_an_error(catalog: Catalog, command: str) -> None:
    error = refused(catalog, "catalog", command)
    assert isinstance(error, NotFoundError)
    assert str(error).startswith(f"{catalog.root}: ")
    assert "--catalog" in str(error)


def test_a_dataset_is_removed_only_after_an_answer(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    store_small_dataset(catalog)
    without_terminal = invoke(catalog, "catalog", "rm", "web")
    assert without_terminal.exit_code == 2
    assert "dataset web with 5 artifacts and 1 run; pass --yes" in without_terminal.output
    monkeypatch.setattr(catalog_module, "_is_terminal", lambda: True)
    no = invoke(catalog, "catalog", "rm", "web", "--json", answer="n\n")
    assert (no.exit_code, no.stdout) == (1, "")
    assert "runs/first" in no.stderr
    assert "web" in catalog
    assert invoke(catalog, "catalog", "rm", "web", answer="y\n").exit_code == 0
    assert "web" not in catalog


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (("ingst", "web", "x"), "'ingest'"),
        (("catalog", "verfy", "web"), "'verify'"),
        (("generate", "web", "rmatt"), "'rmat'"),
        (("ingest", "web", "x", "--format", "parqet"), "'parquet'"),
        (("ingest", "web", "x", "--self-lops"), "'--self-loops'"),
    ],
)
def test_a_typing_error_gets_a_suggestion(catalog: Catalog, arguments: tuple[str, ...], suggestion: str) -> None:
    done = invoke(catalog, *arguments)
    assert done.exit_code == 2
    assert f"Did you mean {suggestion}" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("arguments", "commands"),
    [
        (("ingest", "web", "x", "--feature", "y"), "`gnnloom features`"),
        (("train", "web", "--parts", "2"), "`gnnloom partition`, `gnnloom shard` and `gnnloom export`"),
    ],
)
def test_an_option_of_other_commands_names_these(catalog: Catalog, arguments: tuple[str, ...], commands: str) -> None:
    done = invoke(catalog, *arguments)
    assert done.exit_code == 2
    assert commands in " ".join(done.output.split()).replace("`cli ", "`gnnloom ")


def test_a_changed_option_makes_a_second_graph_only_if_asked_and_commands_choose(
    catalog: Catalog, edges: str, tmp_path: Path
) -> None:
    ingest = ("ingest", "web", edges, "--workers", "0")
    first = succeed(catalog, *ingest)["key"]
    error = refused(catalog, *ingest, "--undirected")
    assert isinstance(error, ExistsError)
    assert f"{first}, complete (undirected=False)" in str(error)
    assert "(undirected=True)" in str(error)
    assert "catalog rm" not in str(error)
    added = invoke(catalog, *ingest, "--undirected", "--add", "--json")
    second = json.loads(added.stdout)["key"]
    assert f"gets another graph, {second} (undirected=True)" in added.stderr
    for command in ("features web random --dim 2 --workers 0", "partition web --parts 2 --method random --workers 0"):
        candidates = str(refused(catalog, *command.split()))
        assert "choose one with `--graph KEY`" in candidates
        assert all(f"{key} (undirected={value})" in candidates for key, value in ((first, False), (second, True)))
        for key in (first, second):
            succeed(catalog, *command.split(), "--graph", key[:6])
    # A graph without held-out links is none of the candidates: no command takes one unless it is named.
    message = (
        catalog["web"]
        .links(succeed(catalog, "links", "web", "random", "--graph", second, "--workers", "0")["key"])
        .message_graph
    )
    again = str(refused(catalog, "partition", "web", "--parts", "2", "--method", "random", "--workers", "0"))
    assert again == candidates.replace("features", "partition")
    assert message not in again
    # Where it is one, it says so, and lacks no parameter that ingested graphs have.
    with pytest.raises(InputError, match=rf"{message} \(without held-out links\)") as several:
        catalog["web"].find("graph")
    assert "default" not in str(several.value)
    assert f"{second} (undirected=True)" in str(several.value)
    shard = ("shard", "web", "--parts", "2", "--workers", "0")
    assert f"graph={second}" in str(refused(catalog, *shard))
    made = catalog["web"].find("shards", succeed(catalog, *shard, "--graph", second)["key"])
    assert made.inputs["graph"] == second
    assert made.inputs["vertices"] == catalog["web"].vertices(graph=second).artifact.key
    out = str(tmp_path / "e.npy")
    assert succeed(catalog, "export", "web", "edges", "--graph", first, "--out", out)["rows"] == 81
    # Other vertex data of one graph: refused, then added, then chosen.
    more = ("features", "web", "random", "--dim", "3", "--workers", "0", "--graph", second)
    assert "`--add`" in str(refused(catalog, *more))
    key = succeed(catalog, *more, "--add")["vertices_key"]
    grid = ("shard", "web", "--grid", "1x1", "--graph", second, "--workers", "0")
    assert "dim=3" in str(refused(catalog, *grid))
    chosen = catalog["web"].find("shards", succeed(catalog, *grid, "--vertices", key)["key"])
    assert chosen.inputs["vertices"] == key


@pytest.mark.parametrize(
    ("command", "there", "given"),
    [
        ("ingest web {0} {1}", "(files=5 (0.txt, 1.txt, 2.txt, ...))", "(files=2 (0.txt, 1.txt))"),
        (
            "ingest web {4} {1} {2} {3} {0}",
            "(files=5 (0.txt, 1.txt, 2.txt, ...))",
            "(files=5 (4.txt, 1.txt, 2.txt, ...))",
        ),
        ("ingest web {0} --undirected", "2.txt, ...), undirected=False)", "(files=1 (0.txt), undirected=True)"),
        ("generate web rmat --scale 3", "(files=5 (0.txt, 1.txt, 2.txt, ...), format=snap", "(files=none, format=rmat"),
    ],
)
def test_other_files_are_told_from_those_of_the_graph_with_a_command_that_makes_room(
    catalog: Catalog, tmp_path: Path, command: str, there: str, given: str
) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_text(f"{number} {number + 1}\n")
    key = succeed(catalog, "ingest", "web", *map(str, paths), "--workers", "0")["key"]
    error = str(refused(catalog, *command.format(*paths).split(), "--workers", "0"))
    before, after = error.split(". This command makes another one ")
    assert there in before
    assert given in after
    assert "scale" not in error
    assert f"remove it with `gnnloom catalog rm web --artifact graph/{key}`" in after
    succeed(catalog, "catalog", "rm", "web", "--artifact", f"graph/{key}", "--force")
    succeed(catalog, *command.format(*paths).split(), "--workers", "0")


def test_rows_without_a_vertex_are_reported(catalog: Catalog, edges: str, tmp_path: Path) -> None:
    succeed(catalog, "ingest", "web", edges, "--ids", "compact", "--workers", "0")
    np.save(tmp_path / "y.npy", np.arange(70) % 2)
    by_row = invoke(catalog, "features", "web", "--label", str(tmp_path / "y.npy"), "--workers", "0", "--json")
    assert json.loads(by_row.stdout)["left_out"] == 49
    assert "data for 49 vertices without an edge, which the graph does not have" in by_row.stderr
    shutil.rmtree(catalog["web"].path / "vertices")
    (tmp_path / "y.csv").write_text("id,label\n" + "".join(f"{v},{v % 2}\n" for v in range(61)))
    by_id = succeed(catalog, "features", "web", "--label", str(tmp_path / "y.csv"), "--by-id", "--workers", "0")
    assert by_id["left_out"] == 40


@pytest.mark.slow
def test_a_failing_task_of_a_worker_process_prints_one_line(
    catalog: Catalog, edges: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    succeed(catalog, "ingest", "web", edges, "--workers", "0")
    (tmp_path / "y.txt").write_text("0\n" * 60 + "-7\n")
    capfd.readouterr()
    words = ["features", "web", "--label", str(tmp_path / "y.txt"), "--workers", "1", "--quiet"]
    with pytest.raises(InputError, match=r"line 61: expected a class"):
        cli.main(["--catalog", str(catalog.root), *words], standalone_mode=False)
    # The command's entry point prints the error itself; Dask must not print it as well.
    assert capfd.readouterr() == ("", "")
