"""Writes a folder in MAG240M's layout, with the proportions of MAG240M or a share of its sizes, in bounded memory.

    meta.pt                                              numbers of vertices by type
    split_dict.pt                                        train, valid, test-dev and test-whole: numbers of papers
    processed/paper/node_feat.npy                        (n, 768) float16
    processed/paper/node_label.npy                       (n,) float32, NaN for none
    processed/SOURCE___RELATION___TARGET/edge_index.npy  (2, m) int64

Ends of edges are the more frequent the lower their ids. Every paper has a class, which its features show under noise;
the share of labeled papers is MAG240M's. Authors and institutions have no features. Hu et al., "OGB-LSC" (NeurIPS 2021
datasets).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

TYPES: Final = {"paper": 121_751_666, "author": 122_383_112, "institution": 25_721}
RELATIONS: Final = {
    ("paper", "cites", "paper"): 1_297_748_926,
    ("author", "writes", "paper"): 386_022_720,
    ("author", "affiliated_with", "institution"): 44_592_586,
}
FEATURES: Final = 768
CLASSES: Final = 153
#: Labeled papers of each part of the split; the first and second half of the last are MAG240M's two test sets.
_SPLITS: Final = {"train": 1_112_392, "valid": 138_949, "test-whole": 146_818}
#: Edges and papers written at a time.
_EDGES, _PAPERS = 1 << 22, 1 << 15


def write_mag(folder: Path, share: float, seed: int = 0) -> dict[str, int]:
    """Write the folder.

    Args:
        share: of MAG240M's vertices and edges.

    Returns:
        Number of vertices by type.
    """
    sizes = {name: max(2, round(count * share)) for name, count in TYPES.items()}
    processed = folder / "processed"
    (processed / "paper").mkdir(parents=True)
    torch.save(sizes, folder / "meta.pt")
    for number, (ends, count) in enumerate(RELATIONS.items()):
        path = processed / "___".join(ends) / "edge_index.npy"
        path.parent.mkdir()
        edges = np.lib.format.open_memmap(str(path), "w+", np.int64, (2, round(count * share)))
        for row, end in enumerate((ends[0], ends[2])):
            random = np.random.default_rng([seed, number, row])
            for start, stop in _ranges(edges.shape[1], _EDGES):
                edges[row, start:stop] = sizes[end] * random.random(stop - start) ** 2
        edges.flush()
    _write_papers(folder, sizes["paper"], seed)
    return sizes


def _write_papers(folder: Path, count: int, seed: int) -> None:
    centers = np.random.default_rng(seed).standard_normal((CLASSES, FEATURES), np.float32)
    path = folder / "processed" / "paper"
    features = np.lib.format.open_memmap(str(path / "node_feat.npy"), "w+", np.float16, (count, FEATURES))
    labels = np.lib.format.open_memmap(str(path / "node_label.npy"), "w+", np.float32, (count,))
    bounds = np.cumsum(list(_SPLITS.values())) / TYPES["paper"]
    parts: dict[str, list[NDArray[np.int64]]] = {name: [] for name in _SPLITS}
    for start, stop in _ranges(count, _PAPERS):
        random = np.random.default_rng([seed, start])
        label = random.integers(0, CLASSES, stop - start)
        part = np.searchsorted(bounds, random.random(stop - start), side="right")
        rows = random.standard_normal((stop - start, FEATURES), np.float32)
        rows += centers[label]
        features[start:stop] = rows
        labels[start:stop] = np.where(part < len(bounds), label, np.nan)
        for number, name in enumerate(_SPLITS):
            parts[name].append(start + np.flatnonzero(part == number))
    features.flush()
    labels.flush()
    split = {name: np.concatenate(found) for name, found in parts.items()}
    split["test-dev"], split["test-challenge"] = np.array_split(split["test-whole"], 2)
    torch.save(split, folder / "split_dict.pt", pickle_protocol=4)


def _ranges(count: int, step: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + step, count)) for start in range(0, count, step))
