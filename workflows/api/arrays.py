"""Arrays in memory as files that the sources read, named by their contents so that equal arrays give equal keys."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import InputError

#: Bytes of a file that are digested at a time.
_BLOCK = 1 << 24

_SPLITS = {"train", "valid", "test"}


def is_location(value: Any) -> TypeGuard[str | Path | Sequence[str | Path]]:
    """Whether a value is the name of a file, folder or URL, or several of them, rather than data."""
    if isinstance(value, list | tuple):
        return len(value) > 0 and all(isinstance(each, str | Path) for each in value)
    return isinstance(value, str | Path)


def as_texts(source: str | Path | Sequence[str | Path]) -> list[str]:
    """Names of files, as texts."""
    return [str(source)] if isinstance(source, str | Path) else [str(each) for each in source]


@contextmanager
def stored_edges(edges: Any) -> Iterator[str]:
    """Write edges, and vertex data that come along, to a temporary file for the time of the ``with`` block.

    Args:
        edges: a SciPy sparse matrix; a ``Data`` of PyG; a data frame of pandas, polars or Arrow; or (2, m) or (m, 2)
            ids in anything that NumPy makes an array of.

    Yields:
        The file, whose name says in which format it is.

    Raises:
        InputError: this is none of them.
    """
    with own_folder() as folder:
        yield _named_by_content(_write_edges(Path(folder), edges))


def _write_edges(folder: Path, edges: Any) -> Path:
    # Neither PyG nor a library of data frames has to be installed, so what they make is known by what it offers.
    if hasattr(edges, "edge_index"):
        return _write_data(folder / "data.pt", edges)
    if hasattr(edges, "__arrow_c_stream__"):
        return _write_frame(folder / "edges.parquet", edges)
    from scipy.sparse import coo_array, issparse, save_npz

    if issparse(edges):
        file = folder / "adjacency.npz"
        # Unlike the other formats, COO keeps equal edges apart.
        matrix: Any = edges
        save_npz(file, coo_array(matrix), compressed=False)
    else:
        file = folder / "edges.npy"
        np.save(file, _array("edges", edges))
    return file


def _write_data(file: Path, data: Any) -> Path:
    """Write a ``Data`` as the format ``pyg`` reads it."""
    import torch

    tensors = {name: value.detach().cpu() for name, value in data.to_dict().items() if torch.is_tensor(value)}
    # Vertices without edges and without data count as well.
    torch.save({**tensors, "num_nodes": data.num_nodes}, file)
    return file


def _write_frame(file: Path, frame: Any) -> Path:
    from pyarrow import ArrowException, parquet, table

    try:
        parquet.write_table(table(frame), file, compression="none")
    except ArrowException as error:
        raise InputError(f"edges: cannot be made an Arrow table ({error})") from error
    return file


@contextmanager
def stored_vertices(arrays: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Write vertex data to temporary files for the time of the ``with`` block.

    Args:
        arrays: by name, the location of a file, or data: anything that NumPy makes an array of; a split may also be a
            mapping with arrays ``train``, ``valid`` and ``test`` of vertex ids. None is left out.

    Yields:
        The location of the file of each array.

    Raises:
        InputError: a value is not an array.
    """
    with own_folder() as folder:
        given = {name: value for name, value in arrays.items() if value is not None}
        yield {name: _stored(Path(folder), name, value) for name, value in given.items()}


def _stored(folder: Path, name: str, value: Any) -> str:
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, Mapping):
        file = folder / f"{name}.npz"
        if set(value) != _SPLITS:
            raise InputError(f"{name}: expected arrays train, valid and test, found {', '.join(map(str, value))}")
        train, valid, test = (_array(f"{name}, {part}", value[part]) for part in ("train", "valid", "test"))
        np.savez(file, train=train, valid=valid, test=test)
    else:
        file = folder / f"{name}.npy"
        np.save(file, _array(name, value))
    return _named_by_content(file)


def _array(name: str, value: Any) -> NDArray[Any]:
    try:
        array = np.ascontiguousarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name}: cannot be made a NumPy array ({error})") from error
    # NumPy would pickle them.
    if array.dtype.hasobject:
        raise InputError(f"{name}: expected numbers or text, found an array of Python objects")
    return array


def _named_by_content(file: Path) -> str:
    """Rename a file after its contents and set its time to 0: both enter the identity of a source."""
    state = xxhash.xxh3_128()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            state.update(block)
    named = file.with_name(f"{file.stem}-{state.hexdigest()}{file.suffix}")
    file.rename(named)
    os.utime(named, (0, 0))
    return str(named)
