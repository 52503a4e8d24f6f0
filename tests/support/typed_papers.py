"""A graph with types as tables: papers that authors write and that cite each other, topics, venues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gnnloom
from gnnloom.storage import Dataset

COUNTS = {"author": 45, "paper": 60, "topic": 8, "venue": 4}
WRITES = ["a", "p", "weight as weight", "day as time", "share as feature", "rank as feature", "role as label"]


def tables(seed: int = 0) -> dict[str, pd.DataFrame]:
    """Tables with parallel edges, a relation without edges between listed vertices, and a type without relations."""
    rng = np.random.default_rng(seed)

    def of(name: str, count: int, **columns: Any) -> pd.DataFrame:
        ends = {"writes": "ap", "cites": "pq", "about": "pt", "knows": "ab", "near": "tp"}[name]
        types = {"a": "author", "b": "author", "p": "paper", "q": "paper", "t": "topic"}
        return pd.DataFrame({end: rng.integers(0, COUNTS[types[end]], count) for end in ends} | columns)

    writes = {
        "weight": rng.integers(1, 9, 220),
        "day": pd.to_datetime(rng.integers(0, 1 << 30, 220), unit="s").strftime("%Y-%m-%dT%H:%M:%S"),
        "share": rng.random(220).round(3),
        "rank": rng.integers(0, 5, 220),
        "role": rng.choice(["first", "last"], 220),
    }
    found = {
        "writes": of("writes", 220, **writes),
        "cites": of("cites", 150, w=rng.integers(1, 9, 150)),
        "about": of("about", 70),
        "knows": of("knows", 60, at=rng.integers(0, 99, 60)),
        "near": pd.DataFrame({"t": [900], "p": [901], "at": [1.5], "f": [2.5]}),
    }
    for name, width in (("author", 3), ("paper", 5)):
        rows = rng.permutation(COUNTS[name])
        columns = {f"x{at}": rng.normal(size=len(rows)).round(3) for at in range(width)}
        found[name] = pd.DataFrame({"id": rows, **columns})
    found["paper"]["y"] = rng.integers(0, 4, COUNTS["paper"])
    found["paper"]["split"] = rng.choice(["train", "valid", "test"], COUNTS["paper"])
    return found


def store(
    folder: Path, name: str, given: dict[str, pd.DataFrame], leave_out: str = "", topics: np.ndarray | None = None
) -> Dataset:
    """The graph of some tables.

    Args:
        leave_out: a relation that is left out.
        topics: ids of the topics; by default, numbers from 0.
    """
    relations = {
        ("author", "writes", "paper"): (given["writes"], WRITES),
        ("paper", "cites", "paper"): (given["cites"], ["p", "q", "w as weight"]),
        ("paper", "about", "topic"): (given["about"], ["p", "t"]),
        ("author", "knows", "author"): (given["knows"], ["a", "b", "at as time"]),
        ("topic", "near", "paper"): (given["near"], ["t", "p", "at as time", "f as feature"]),
    }
    relations = {each: table for each, table in relations.items() if each[1] != leave_out}
    features = {each: [f"{c} as feature" for c in given[each] if c.startswith("x")] for each in ("author", "paper")}
    vertices = {
        "author": (given["author"], ["id", *features["author"]]),
        "paper": (given["paper"], ["id", *features["paper"], "y as label", "split as split"]),
        "topic": np.arange(COUNTS["topic"]) if topics is None else topics,
        "venue": np.arange(COUNTS["venue"]),
    }
    return gnnloom.ingest(
        name, relations=relations, vertices=vertices, merge="keep", unknown="drop", workers=0, catalog=folder
    )


def whole_graph(dataset: Any, *, reverse: bool = False) -> Any:
    """``to_pyg()`` in float64, perhaps with the reverses of all relations."""
    data = dataset.to_pyg()
    for store in (*data.node_stores, *data.edge_stores):
        for name in ("x", "edge_attr", "edge_weight"):
            if name in store:
                store[name] = store[name].double()
    for source, name, target in list(data.edge_types) if reverse else ():
        for key, value in data[source, name, target].items():
            turned = value.flip(0) if key == "edge_index" else value
            data[target, f"rev_{name}", source][key] = turned
    return data
