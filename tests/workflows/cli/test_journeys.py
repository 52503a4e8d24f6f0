"""From tables as nine programs write them to predictions, by the commands that gnnloom prints alone."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from gnnloom.storage import Catalog
from gnnloom.workflows.cli.main import cli

NUM = 20
EDGES = [(k % NUM, (7 * k + 1 + k // NUM) % NUM, k % 3 + 0.5) for k in range(60)]
NAMES = [f"v{k:02}" for k in range(NUM)]
PARTS = ("train", "train", "val", "test")
#: Name, age, number of children, class and part of the split of each vertex.
PEOPLE = [(NAMES[k], 20.5 + k, k % 3, "ab"[k % 2], PARTS[k % 4]) for k in range(NUM)]
NUMBERED = [(k, *person[1:]) for k, person in enumerate(PEOPLE)]
NAMED_EDGES = [(NAMES[source], NAMES[target], weight) for source, target, weight in EDGES]
NULL = "\\N"


def write(path: Path, rows: list[Any], separator: str, end: str = "\n") -> None:
    path.write_bytes("".join(separator.join(map(str, row)) + end for row in rows).encode())


def excel(folder: Path) -> tuple[str, str]:
    def german(row: Any) -> list[str]:
        return [f'"{cell}"' if cell in NAMES else str(cell).replace(".", ",") for cell in row]

    edges = [["\ufeffvon", "nach", "Betrag"], *map(german, NAMED_EDGES)]
    write(folder / "Kanten.csv", edges, ";", "\r\n")
    people = [["\ufeffKunde", "Alter", "Kinder", "Sparte", "Teil"], *map(german, PEOPLE)]
    write(folder / "Kunden.csv", people, ";", "\r\n")
    return "Kanten.csv", "Kunden.csv"


def pandas(folder: Path) -> tuple[str, str]:
    pd.DataFrame(EDGES, columns=["payer", "payee", "amount"]).to_csv(folder / "edges.csv")
    columns = ["account", "age", "children", "segment", "fold"]
    pd.DataFrame(NUMBERED, columns=columns).to_csv(folder / "nodes.csv")
    return "edges.csv", "nodes.csv"


def postgres(folder: Path) -> tuple[str, str]:
    times = [f"2024-03-{1 + source:02} 10:00:00" for source, _, _ in EDGES]
    edges = [(100 + u, 100 + v, weight, time) for (u, v, weight), time in zip(EDGES, times, strict=True)]
    write(folder / "transfer.csv", [("from_id", "to_id", "amount", "created_at"), *edges], ",")
    people = [(100 + k, NULL if k == 3 else age, *others) for k, age, *others in NUMBERED]
    write(folder / "account.csv", [("id", "age", "children", "segment", "fold"), *people], ",")
    return "transfer.csv", "account.csv"


def spark(folder: Path) -> tuple[str, str]:
    for name, rows in (("edges", EDGES), ("nodes", NUMBERED)):
        parts = folder / name
        parts.mkdir()
        (parts / "_SUCCESS").touch()
        for part in range(2):
            text = "".join(",".join(map(str, row)) + "\n" for row in rows[part::2])
            (parts / f"part-0000{part}-1b2c.csv.gz").write_bytes(gzip.compress(text.encode()))
    return "edges", "nodes"


def gephi(folder: Path) -> tuple[str, str]:
    edges = [(source, target, "Directed", weight) for source, target, weight in NAMED_EDGES]
    write(folder / "edges.csv", [("Source", "Target", "Type", "Weight"), *edges], ";")
    people = [(name, f"Name {name}", "", children, age, part) for name, age, children, _, part in PEOPLE]
    head = ("Id", "Label", "timeset", "modularity_class", "pagerank", "part")
    write(folder / "nodes.csv", [head, *people], ";")
    return "edges.csv", "nodes.csv"


def networkx(folder: Path) -> tuple[str, str]:
    library: Any = nx
    graph = library.DiGraph()
    graph.add_weighted_edges_from(NAMED_EDGES)
    library.write_weighted_edgelist(graph, folder / "g.edgelist")
    write(folder / "nodes.tsv", [("node", "age", "children", "group", "split"), *PEOPLE], "\t")
    return "g.edgelist", "nodes.tsv"


def konect(folder: Path) -> tuple[str, str]:
    edges = [(u + 1, v + 1, weight, 1082040961 + u) for u, v, weight in EDGES]
    write(folder / "out.web", [("% asym positive",), (f"% {len(edges)} {NUM} {NUM}",), *edges], "\t")
    people = [(k + 1, *others) for k, *others in NUMBERED]
    write(folder / "ent.web", [("id", "age", "children", "class", "split"), *people], "\t")
    return "out.web", "ent.web"


def parquet(folder: Path) -> tuple[str, str]:
    edges = pd.DataFrame(EDGES, columns=["user_from", "user_to", "score"])
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    people = pd.DataFrame(NUMBERED, columns=["user", "age", "children", "tier", "split"])
    pq.write_table(pa.table(people), folder / "people.parquet")
    return "edges.parquet", "people.parquet"


def logs(folder: Path) -> tuple[str, str]:
    """Tables of a shell: bars, and a comment that names the program."""
    write(folder / "calls.log", [("# by calls 1.2",), *NAMED_EDGES], "|")
    write(folder / "people.txt", [("name", "age", "children", "role", "split"), *PEOPLE], ":")
    return "calls.log", "people.txt"


QUICK = (excel, spark, parquet)
LONG = (pandas, postgres, gephi, networkx, konect, logs)


def call(folder: Path, command: str) -> Result:
    """Run a command line as a shell does, in this process except for what other programs do."""
    before, _, line = command.rpartition(" && ")
    if before:
        subprocess.run(["bash", "-c", before], cwd=folder, check=True)
    words = shlex.split(line)
    assert words[0] == "gnnloom"
    return CliRunner().invoke(cli, ["--catalog", str(folder / "catalog"), *words[1:]])


def proposed(folder: Path, path: str) -> str:
    """The command that a look proposes; a folder names the glob to look at instead."""
    result = call(folder, f"gnnloom look {path} --json")
    if result.exit_code:
        (glob,) = re.findall(r"in quotes: ('[^']*')", str(result.exception))
        result = call(folder, f"gnnloom look {glob} --json")
    command = json.loads(result.stdout)["command"]
    assert isinstance(command, str)
    return command.replace(" NAME ", " g ")


def follow(folder: Path, command: str) -> Result:
    """Run a command; if it is refused, run the commands that the message has, and then the command again."""
    result = call(folder, command)
    if result.exit_code:
        others = re.findall(r"`(gnnloom [^`]*)`", str(result.exception))
        assert others, result.exception
        for other in others:
            done = call(folder, f"{other} --workers 0")
            assert done.exit_code == 0, (other, done.exception)
        result = call(folder, command)
    assert result.exit_code == 0, (command, result.exception)
    return result


@pytest.mark.parametrize("program", [*QUICK, *(pytest.param(each, marks=pytest.mark.long) for each in LONG)])
def test_proposed_commands_lead_from_the_tables_of_a_program_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Callable[[Path], tuple[str, str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in program(tmp_path):
        follow(tmp_path, f"{proposed(tmp_path, path)} --workers 0")
    dataset = Catalog(tmp_path / "catalog").dataset("g")
    graph, vertices = dataset.graph(), dataset.vertices()
    # Each row came to its vertex, whatever ids are called.
    given = np.array([[age, children] for _, age, children, _, _ in PEOPLE])
    order = [NAMES.index(name) for name in graph.original_name()] if graph.has_names else range(NUM)
    found = vertices.feature()[:, 0]
    known = ~np.isnan(given[order][:, 0]) if program is not postgres else np.arange(NUM) != 3
    assert (found[known] == given[order][known, 0]).all()
    matrix = graph.to_scipy()[np.argsort(order)][:, np.argsort(order)]
    weights: dict[tuple[int, int], float] = {}
    for source, target, weight in EDGES:
        weights[target, source] = weights.get((target, source), 0) + weight
    assert graph.weighted
    assert all(matrix[edge] == pytest.approx(weight) for edge, weight in weights.items() if edge[0] != edge[1])
    assert (np.bincount(vertices.split(), minlength=4) == [0, 10, 5, 5]).all()
    follow(tmp_path, "gnnloom train g/run --ranks 1 --epochs 2 --hidden 4 --threads 1")
    result = follow(tmp_path, "gnnloom predict g/run --json")
    assert json.loads(result.stdout)
