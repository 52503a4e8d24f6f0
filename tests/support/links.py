"""Writes links artifacts from NumPy arrays, without the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from gnnloom.storage import Dataset, Graph
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.schema import LINK_SPLITS

_MASK = (1 << 64) - 1
_DIMS = {
    "pair": ("pair", "end"),
    "negative": ("pair", "negative"),
    "negative_source": ("pair", "replaced"),
    "pool": ("pooled", "end"),
    "baseline": ("pair", "baseline"),
    "pool_baseline": ("pooled", "baseline"),
    "negative_baseline": ("pair", "negative", "baseline"),
}


def store_links(
    dataset: Dataset, graph: Graph, arrays: Mapping[str, np.ndarray], message_graph: str | None = None, **facts: Any
) -> Links:
    """Write the links of a graph.

    Args:
        arrays: by path, such as ``train/pair``; ``train/weight`` is made of ones if it is missing.
        message_graph: key of the graph without held-out edges; by default none is held out.
        facts: facts of the manifest that differ from those of pairs without values.
    """
    pairs = {split: np.asarray(arrays[f"{split}/pair"], np.int64).reshape(-1, 2) for split in LINK_SPLITS}
    given = {"train/weight": np.ones(len(pairs["train"]), np.uint8), **arrays}
    given |= {f"{split}/pair": pair for split, pair in pairs.items()}
    num_pairs = {split: len(pair) for split, pair in pairs.items()}
    found = {
        "num_pairs": num_pairs,
        "message_graph": message_graph or graph.artifact.key,
        "symmetric": graph.symmetric,
        "kind": "pair",
        "num_classes": 0,
        "train_held_out": False,
        "held_out_entries": (2 if graph.symmetric else 1) * (num_pairs["valid"] + num_pairs["test"]),
        **facts,
    }
    parameters = {"method": "given", "of": str(hash(tuple(np.asarray(array).tobytes() for array in given.values())))}
    with ArtifactWriter.begin(dataset.path, "links", parameters, {"graph": graph.artifact.key}) as writer:
        with writer.task("all/0") as output:
            for name, array in given.items():
                dims = _DIMS.get(name.rpartition("/")[2], ("pair",))
                output.add(write_array(writer.path, name, np.asarray(array), dims))
        return Links(writer.commit(["all/0"], {"vertex": graph.num_vertices}, found))


def pairs_of(adjacency: Any, *, symmetric: bool) -> np.ndarray:
    """(num_pairs, 2) int64 pairs of a matrix, by target and source; without loops."""
    entries = scipy.sparse.coo_array(adjacency)
    target, source = entries.coords
    chosen = source < target if symmetric else source != target
    pairs = np.stack([source[chosen], target[chosen]], axis=1).astype(np.int64)
    return pairs[np.lexsort(pairs.T)]


def mixed(value: int) -> int:
    """The finalizer of splitmix64, on Python's integers."""
    value &= _MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)
