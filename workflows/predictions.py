"""Predictions of a run as a file of the user's: NumPy in the order of the vertices, or CSV with original ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnloom.storage import Graph
from gnnloom.storage.errors import InputError
from gnnloom.storage.run import Predictions

_SUFFIXES = (".npy", ".csv")


def check_output(path: Path | None) -> None:
    """Check the name of an output file before anything is computed.

    Raises:
        InputError: it ends in neither ``.npy`` nor ``.csv``, or its folder is not there.
    """
    if path is None:
        return
    if path.suffix not in _SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in {' or '.join(_SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.absolute().parent}")


def write_predictions(predictions: Predictions, graph: Graph, path: Path) -> None:
    """Write the predicted class of every vertex, chunk by chunk."""
    if path.suffix == ".csv":
        _write_csv(predictions, graph, path)
    else:
        _write_npy(predictions, path)


def _spans(predictions: Predictions) -> list[tuple[int, int]]:
    label = predictions.array("label")
    return [(start, min(start + label.chunk_rows, len(label))) for start in range(0, len(label), label.chunk_rows)]


def _write_npy(predictions: Predictions, path: Path) -> None:
    label = predictions.array("label")
    out = np.lib.format.open_memmap(path, mode="w+", dtype=label.dtype, shape=label.shape)
    for start, stop in _spans(predictions):
        out[start:stop] = label.read(start, stop)
    out.flush()


def _write_csv(predictions: Predictions, graph: Graph, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("vertex,class\n")
        for start, stop in _spans(predictions):
            rows = np.column_stack([graph.original_id(start, stop), predictions.label(start, stop)])
            np.savetxt(file, rows, fmt="%d", delimiter=",")
