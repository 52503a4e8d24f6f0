"""One graph with three types in the layouts of several systems."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

#: Numbers of vertices of the types.
SIZES: Final = {"author": 12, "institution": 4, "paper": 9}
Edges = dict[tuple[str, str, str], np.ndarray]


def typed_edges() -> Edges:
    """(m, 2) sources and targets of each relation, all different."""
    random, found = np.random.default_rng(3), {}
    for ends, count in ((("author", "writes", "paper"), 30), (("paper", "cites", "paper"), 20),
                        (("author", "affiliated_with", "institution"), 12)):  # fmt: skip
        sizes = SIZES[ends[0]], SIZES[ends[2]]
        chosen = np.sort(random.choice(sizes[0] * sizes[1], count, replace=False))
        found[ends] = np.stack(np.divmod(chosen, sizes[1]), 1)
    return found


def paper_features() -> np.ndarray:
    """(9, 1024) features of the papers."""
    return np.random.default_rng(4).standard_normal((SIZES["paper"], 1024)).astype(np.float32)


def _text(path: Path, rows: np.ndarray, between: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{between.join(map(str, row))}\n" for row in rows.tolist()))
    return path.name


def _array(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def write_graphbolt(folder: Path) -> Path:
    """Two relations as CSV, one as an array, and the features of the papers."""
    import yaml

    edges: list[dict[str, Any]] = []
    for ends, rows in typed_edges().items():
        name = ":".join(ends)
        if "cites" in name:
            _array(folder / "edges" / f"{ends[1]}.npy", rows.T)
            edges.append({"type": name, "format": "numpy", "path": f"edges/{ends[1]}.npy"})
        else:
            _text(folder / "edges" / f"{ends[1]}.csv", rows, ",")
            edges.append({"type": name, "format": "csv", "path": f"edges/{ends[1]}.csv"})
    _array(folder / "paper.npy", paper_features())
    content = {
        "dataset_name": "mag",
        "graph": {"nodes": [{"type": name, "num": count} for name, count in SIZES.items()], "edges": edges},
        "feature_data": [{"domain": "node", "type": "paper", "name": "feat", "format": "numpy", "path": "paper.npy"}],
    }
    (folder / "metadata.yaml").write_text(yaml.safe_dump(content))  # type: ignore[no-untyped-call]
    return folder


def write_chunked(folder: Path) -> Path:
    """Each relation in two chunks, separated by blanks."""
    edges: dict[str, Any] = {}
    for ends, rows in typed_edges().items():
        chunks = [rows[:10], rows[10:]]
        names = [f"edges/{_text(folder / 'edges' / f'{ends[1]}-{k}.txt', each, ' ')}" for k, each in enumerate(chunks)]
        edges[":".join(ends)] = {"format": {"name": "csv", "delimiter": " "}, "data": names}
    _array(folder / "paper.npy", paper_features())
    content = {
        "graph_name": "mag",
        "node_type": list(SIZES),
        "num_nodes_per_chunk": [[count - 3, 3] for count in SIZES.values()],
        "edge_type": list(edges),
        "num_edges_per_chunk": [[10, len(rows) - 10] for rows in typed_edges().values()],
        "edges": edges,
        "node_data": {"paper": {"feat": {"format": {"name": "numpy"}, "data": ["paper.npy"]}}},
        "edge_data": {},
    }
    (folder / "metadata.json").write_text(json.dumps(content))
    return folder


def write_gconstruct(folder: Path) -> Path:
    """Tables with headers, by the description's patterns; papers have two features and a class."""
    nodes: list[dict[str, Any]] = []
    for name, count in SIZES.items():
        lines = [f"{number},{number + 2000},{number / 2},{number % 3}\n" for number in range(count)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.csv").write_text("".join(["id,year,pages,venue\n", *lines]))
        node: dict[str, Any] = {"node_type": name, "node_id_col": "id", "format": {"name": "csv"}}
        node["files"] = [f"{name}.csv"]
        if name == "paper":
            node["features"] = [
                {"feature_col": ["year", "pages"], "feature_name": "numbers"},
                {"feature_col": "venue", "transform": {"name": "to_categorical"}},
            ]
            node["labels"] = [{"label_col": "venue", "task_type": "classification"}]
        nodes.append(node)
    edges: list[dict[str, Any]] = []
    for ends, rows in typed_edges().items():
        for k, each in enumerate((rows[:7], rows[7:])):
            path = folder / f"{ends[1]}-{k}.csv"
            _text(path, each, "\t")
            path.write_text(f"from\tto\n{path.read_text()}")
        edge: dict[str, Any] = {"relation": list(ends), "source_id_col": "from", "dest_id_col": "to"}
        edges += [{**edge, "files": f"{ends[1]}-*.csv", "format": {"name": "csv", "separator": "\t"}}]
    path = folder / "config.json"
    path.write_text(json.dumps({"version": "gconstruct-v0.1", "nodes": nodes, "edges": edges}))
    return path


def write_arrays(folder: Path, between: str = "___") -> Path:
    """As MAG240M with three underscores, without ``meta.pt``; as IGB with two, with features without headers."""
    for name, count in SIZES.items():
        values = paper_features() if name == "paper" else np.zeros((count, 1024), np.float32)
        (folder / "processed" / name).mkdir(parents=True)
        if between == "___":
            np.save(folder / "processed" / name / "node_feat.npy", values)
        else:
            values.tofile(folder / "processed" / name / "node_feat.npy")
    for ends, rows in typed_edges().items():
        _array(folder / "processed" / between.join(ends) / "edge_index.npy", rows.T if between == "___" else rows)
    return folder


#: Writers of the layouts by name.
LAYOUTS: Final[dict[str, Callable[[Path], Path]]] = {
    "graphbolt": write_graphbolt,
    "chunked": write_chunked,
    "gconstruct": write_gconstruct,
    "arrays": write_arrays,
    "arrays-without-headers": lambda folder: write_arrays(folder, "__"),
}
