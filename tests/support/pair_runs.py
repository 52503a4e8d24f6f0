"""Small graphs with links, and runs on these graphs, trained by the commands that users call."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from numpy.typing import NDArray

from gnnloom.workflows.cli.main import cli

NUM_VERTICES = 60
TRAIN = ("--embed", "6", "--hidden", "8", "--output-dim", "5", "--epochs", "2", "--lr", "0.1", "--precision", "float64")


def call(root: Path, *arguments: str) -> Any:
    """Run a command and return its JSON output; raises its error."""
    result = CliRunner().invoke(cli, ["--catalog", str(root), *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def shown(root: Path, *arguments: str) -> str:
    """Run a command and return what it prints for people."""
    result = CliRunner().invoke(cli, ["--catalog", str(root), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def name_of(vertex: int) -> str:
    return f"v, {vertex:02d}"


def drawn_edges(seed: int) -> NDArray[np.int64]:
    """(num_edges, 2) edges of which each vertex has some."""
    rng = np.random.default_rng(seed)
    ring = np.stack([np.arange(NUM_VERTICES), (np.arange(NUM_VERTICES) + 1) % NUM_VERTICES], 1)
    drawn = rng.integers(0, NUM_VERTICES, (200, 2))
    return np.unique(np.concatenate([ring, drawn[drawn[:, 0] != drawn[:, 1]]]), axis=0)


def write_csv(path: Path, rows: list[list[Any]]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def store_named(root: Path, folder: Path) -> None:
    """An undirected graph whose vertices have names, with links, and a row shard of what they leave of it."""
    named = [[name_of(u), name_of(v)] for u, v in drawn_edges(1).tolist()]
    edges = write_csv(folder / "named.csv", [["from", "to"], *named])
    call(root, "ingest", "named", edges, "--header", "--ids", "compact", "--undirected", "--workers", "0")
    shard(root, "named", "random", "--test", "0.2")


def shard(root: Path, name: str, *options: str) -> None:
    """Make links, and a row shard of the graph without the held-out edges."""
    message = call(root, "links", name, *options, "--workers", "0")["message_graph"]
    call(root, "partition", name, "--graph", message, "--parts", "1", "--method", "block", "--workers", "0")
    call(root, "shard", name, "--parts", "1", "--workers", "0")
