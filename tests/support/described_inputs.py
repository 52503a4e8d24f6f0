"""Small datasets with types that describe themselves, and simple readers of them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from support.simple_readers import (
    MISSING,
    Graph,
    TypedInput,
    UnreadableError,
    read_lines,
    read_pairs,
    read_rows,
    whole_number,
)


def _ogb(raw: Path) -> Graph:
    types, counts = read_rows(raw / "num-node-dict.csv")
    sizes = dict(zip(types, map(int, counts), strict=True))
    graph = _numbered(sizes)
    for head, word, tail in read_rows(raw / "triplet-type-list.csv"):
        folder = raw / "relations" / f"{head}___{word}___{tail}"
        rows, count = read_pairs(folder / "edge.csv"), read_lines(folder / "num-edge-list.csv")
        if [line.strip(" \t\r") for line in count if line.strip(" \t\r")] != [str(len(rows))]:
            raise UnreadableError("another number of edges")
        _add_numbered(graph, sizes, (head, word, tail), rows)
    return graph


#: A description in JSON of two relations, one of them in two chunks.
_CHUNKED = {
    "metadata.json": json.dumps(
        {
            "node_type": ["author", "paper"],
            "num_nodes_per_chunk": [[2, 1], [2]],
            "edge_type": ["author:writes:paper", "paper:cites:paper"],
            "num_edges_per_chunk": [[2, 1], [2]],
            "edges": {
                "author:writes:paper": {
                    "format": {"name": "csv", "delimiter": ","},
                    "data": ["writes-0.csv", "writes-1.csv"],
                },
                "paper:cites:paper": {"format": {"name": "csv", "delimiter": ","}, "data": ["cites.csv"]},
            },
        }
    ),
    "writes-0.csv": "0,0\n1,0\n",
    "writes-1.csv": "2,1\n",
    "cites.csv": "1,0\n0,1\n",
}


def _chunked(folder: Path) -> Graph:
    content = json.loads((folder / "metadata.json").read_text(encoding="utf-8-sig"))
    sizes = dict(zip(content["node_type"], map(sum, content["num_nodes_per_chunk"]), strict=True))
    graph = _numbered(sizes)
    for number, ends in enumerate(content["edge_type"]):
        stated = content["num_edges_per_chunk"][number] if "num_edges_per_chunk" in content else None
        chunks = [read_pairs(folder / name) for name in content["edges"][ends]["data"]]
        if stated is not None and stated != [len(rows) for rows in chunks]:
            raise UnreadableError("another number of edges")
        _add_numbered(graph, sizes, list(map(str.strip, ends.split(":"))), [row for rows in chunks for row in rows])
    return graph


#: Edges of the folders below, from authors to papers and between papers.
_FOLDER_EDGES: Mapping[tuple[str, str, str], Any] = {
    ("author", "writes", "paper"): np.array([[0, 1, 2, 3, 0], [0, 0, 1, 2, 2]]),
    ("paper", "cites", "paper"): np.array([[1, 0], [0, 2]]),
}
_FOLDER_SIZES = {"author": 4, "paper": 3}


def _bytes(values: Any) -> bytes:
    """The file of an array."""
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def _graphbolt_files() -> dict[str, str | bytes]:
    """A description in YAML, edges as text and as an array, and features."""
    writes, cites = _FOLDER_EDGES.values()
    return {
        "metadata.yaml": (
            "dataset_name: mag\ngraph:\n  nodes:\n  - {type: author, num: 4}\n  - {type: paper, num: 3}\n  edges:\n"
            '  - {type: "author:writes:paper", format: csv, path: writes.csv}\n'
            '  - {type: "paper:cites:paper", format: numpy, path: cites.npy}\n'
            "feature_data:\n- {domain: node, type: paper, name: feat, format: numpy, path: paper.npy}\n"
        ),
        "writes.csv": "".join(f"{source},{target}\n" for source, target in writes.T.tolist()),
        "cites.npy": _bytes(cites),
        "paper.npy": _bytes(np.arange(6, dtype=np.float32).reshape(3, 2)),
    }


def _graphbolt(folder: Path) -> Graph:
    content = yaml.safe_load((folder / "metadata.yaml").read_text(encoding="utf-8-sig"))["graph"]  # type: ignore[no-untyped-call]
    sizes = {each["type"]: int(each["num"]) for each in content["nodes"]}
    graph = _numbered(sizes)
    for each in content["edges"]:
        path = folder / each["path"]
        rows = read_pairs(path) if each["format"] == "csv" else _array_pairs(np.load(path, allow_pickle=False))
        _add_numbered(graph, sizes, [part.strip() for part in each["type"].split(":")], rows)
    return graph


def _array_files(between: str) -> dict[str, str | bytes]:
    """As MAG240M with three underscores, and as IGB with two, whose features have no header."""
    files: dict[str, str | bytes] = {}
    for name, count in _FOLDER_SIZES.items():
        rows = np.ones((count, 1024 if between == "__" else 2), np.float32)
        files[f"processed/{name}/node_feat.npy"] = rows.tobytes() if between == "__" else _bytes(rows)
    for ends, edges in _FOLDER_EDGES.items():
        own = edges.T if between == "__" else edges
        files[f"processed/{between.join(ends)}/edge_index.npy"] = _bytes(own)
    return files


def _array_folder(folder: Path, between: str) -> Graph:
    sizes = {}
    for name in _FOLDER_SIZES:
        path = folder / "processed" / name / "node_feat.npy"
        has_header = path.read_bytes()[:6] == b"\x93NUMPY"
        sizes[name] = len(np.load(path, mmap_mode="r")) if has_header else path.stat().st_size // 4096
    graph = _numbered(sizes)
    for ends in _FOLDER_EDGES:
        edges = np.load(folder / "processed" / between.join(ends) / "edge_index.npy", allow_pickle=False)
        _add_numbered(graph, sizes, ends, _array_pairs(edges))
    return graph


#: A description in JSON of tables with headers; ids are names.
_GCONSTRUCT = {
    "config.json": json.dumps(
        {
            "nodes": [
                {
                    "node_type": "author",
                    "node_id_col": "id",
                    "format": {"name": "csv"},
                    "files": ["authors.csv"],
                    "features": [{"feature_col": ["age"]}],
                },
                {"node_type": "paper", "node_id_col": "id", "format": {"name": "csv"}, "files": "papers.csv"},
            ],
            "edges": [
                {
                    "relation": ["author", "writes", "paper"],
                    "source_id_col": "from",
                    "dest_id_col": "to",
                    "format": {"name": "csv", "separator": "\t"},
                    "files": ["writes-*.csv"],
                },
                {
                    "relation": ["paper", "cites", "paper"],
                    "source_id_col": "from",
                    "dest_id_col": "to",
                    "format": {"name": "csv"},
                    "files": ["cites.csv"],
                },
            ],
        }
    ),
    "authors.csv": "id,age\nann,30\nbob,41\ncem,25\n",
    "papers.csv": "year,id\n1999,p1\n2001,p2\n2002,p3\n",
    "writes-0.csv": "from\tto\nann\tp1\nbob\tp1\n",
    "writes-1.csv": "from\tto\ncem\tp2\n",
    "cites.csv": "to,from\np1,p2\np3,p1\n",
}


def _gconstruct(folder: Path) -> Graph:
    content = json.loads((folder / "config.json").read_text(encoding="utf-8-sig"))

    def rows(each: Mapping[str, Any], *columns: str) -> Iterator[list[str]]:
        between = each["format"].get("separator") or ","
        patterns = each["files"] if isinstance(each["files"], list) else [each["files"]]
        for path in (path for pattern in patterns for path in sorted(folder.glob(pattern))):
            header, *lines = read_rows(path, between)
            numbers = [header.index(column) for column in columns]
            yield from ([line[number] for number in numbers] for line in lines)

    graph = Graph()
    for each in content["nodes"]:
        for (name,) in rows(each, each["node_id_col"]):
            graph.kinds[each["node_type"], name] = each["node_type"]
    for each in content["edges"]:
        head, word, tail = each["relation"]
        for source, target in rows(each, each["source_id_col"], each["dest_id_col"]):
            ends = (head, source), (tail, target)
            if not all(end in graph.kinds for end in ends) or {source.lower(), target.lower()} & MISSING:
                raise UnreadableError("an end is not listed, or missing")
            graph.edges[word, *ends] += 1
    return graph


def _hetero_file() -> bytes:
    """The dict of a ``HeteroData``, as ``torch.save`` writes it."""
    import torch

    content: dict[Any, Any] = {name: {"num_nodes": count} for name, count in _FOLDER_SIZES.items()}
    content["paper"]["x"] = torch.arange(6.0).reshape(3, 2)
    for ends, edges in _FOLDER_EDGES.items():
        content[ends] = {"edge_index": torch.from_numpy(edges), "edge_weight": torch.arange(edges.shape[1]) / 2}
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def _hetero(path: Path) -> Graph:
    import torch

    try:
        # It reads plain containers and tensors only.
        content = torch.load(path, weights_only=True)
    except Exception:  # noqa: BLE001 - torch raises anything
        # It checks more than the tensors and what leads to them, all of which are then as they were.
        content = torch.load(io.BytesIO(_hetero_file()), weights_only=True)
    sizes = {name: int(each["num_nodes"]) for name, each in content.items() if isinstance(name, str)}
    graph = _numbered(sizes)
    for ends, each in content.items():
        if isinstance(ends, tuple):
            weights = each["edge_weight"].tolist() if "edge_weight" in each else [1.0] * each["edge_index"].shape[1]
            _add_numbered(graph, sizes, ends, _array_pairs(each["edge_index"].numpy()), weights)
    return graph


def _numbered(sizes: Mapping[str, int]) -> Graph:
    """Vertices with numbers from 0."""
    return Graph({(name, str(each)): name for name, count in sizes.items() for each in range(count)})


def _array_pairs(values: Any) -> list[list[str]]:
    """The rows of an array of edges."""
    if values.dtype.kind not in "iu" or values.ndim != 2 or 2 not in values.shape:
        raise UnreadableError("another array")
    rows = values.T if values.shape[0] == 2 else values
    return [[str(each) for each in row] for row in rows.tolist()]


def _add_numbered(
    graph: Graph,
    sizes: Mapping[str, int],
    ends: Sequence[str],
    rows: Sequence[Sequence[str]],
    weights: Sequence[float] = (),
) -> None:
    """Add edges between numbers within their types."""
    head, word, tail = ends
    for at, (source, target) in enumerate(rows):
        i, j = whole_number(source), whole_number(target)
        if i >= sizes[head] or j >= sizes[tail]:
            raise UnreadableError("beyond its type")
        graph.edges[word, (head, str(i)), (tail, str(j)), *weights[at : at + 1]] += 1


_OGB = {
    "raw/num-node-dict.csv": "author,paper\n4,3\n",
    "raw/triplet-type-list.csv": "author,writes,paper\npaper,cites,paper\n",
    "raw/relations/author___writes___paper/edge.csv": "0,0\n1,0\n2,2\n1,0\n",
    "raw/relations/author___writes___paper/num-edge-list.csv": "4\n",
    "raw/relations/paper___cites___paper/edge.csv": "0,1\n1,2\n",
    "raw/relations/paper___cites___paper/num-edge-list.csv": "2\n",
}


def described_inputs() -> Iterator[tuple[str, TypedInput]]:
    """Inputs by name."""
    yield "ogb with types", TypedInput(_OGB, lambda folder: _ogb(folder / "raw"), {"source": "DIR"}, by_space=True)
    yield "chunks", TypedInput(_CHUNKED, _chunked, {"source": "DIR"}, by_space=True)
    yield "graphbolt", TypedInput(_graphbolt_files(), _graphbolt, {"source": "DIR"}, by_space=True)
    named = {"source": "DIR/config.json", "ids": "names"}
    yield "gconstruct", TypedInput(_GCONSTRUCT, _gconstruct, named, by_space=True)
    for name, between in (("mag240m", "___"), ("igb", "__")):
        yield (
            name,
            TypedInput(
                _array_files(between),
                partial(_array_folder, between=between),
                {"source": "DIR"},
                by_space=True,
            ),
        )
    file = {"source": "DIR/data.pt"}
    hetero = {"data.pt": _hetero_file()}
    yield "hetero", TypedInput(hetero, lambda folder: _hetero(folder / "data.pt"), file, ("weight",), by_space=True)
