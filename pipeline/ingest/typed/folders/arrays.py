"""Folders of NumPy arrays, one of each type and of each relation, as MAG240M and IGB have them.

    processed/paper/node_feat.npy                  features of the vertices of a type
    processed/author___writes___paper/edge_index.npy   (2, m) or (m, 2) numbers within their types
    processed/paper/node_label.npy                 classes of a type, NaN for none (MAG240M)
    split_dict.pt                                  vertices of each part of the split (MAG240M)
    meta.pt                                        numbers of vertices by type (MAG240M)

IGB separates the parts of a name by two underscores, and the features of its largest graphs are 1024 numbers of float32
for each vertex in a file without a header. Hu et al., "OGB-LSC" (NeurIPS 2021 datasets); Khatua et al., "IGB" (KDD
2023).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.ingest.typed.declared import DeclaredTables
from gnnloom.pipeline.ingest.typed.folders.description import local_path, sorted_relations
from gnnloom.pipeline.ingest.typed.table import Ends, Table
from gnnloom.pipeline.ingest.typed.type_vertices import TypeVertices
from gnnloom.pipeline.sources.binary.stored_arrays import open_array
from gnnloom.pipeline.sources.binary.torch_arrays import torch_content
from gnnloom.pipeline.sources.reading.files import open_file
from gnnloom.storage.artifacts.typed.typed_names import valid_name
from gnnloom.storage.errors import InputError

#: The name of the folder of a relation.
_RELATION: Final = re.compile(r"([^_]+(?:_[^_]+)*?)(___?)([^_]+(?:_[^_]+)*?)\2([^_]+(?:_[^_]+)*)")
_FOLDER, _EDGES, _FEATURES, _COUNTS = "processed", "edge_index.npy", "node_feat.npy", "meta.pt"
#: Labels of MAG240M; IGB has several sets of classes, under other names.
_LABELS, _SPLIT = "node_label.npy", "split_dict.pt"
#: First bytes of every NumPy file.
_MAGIC: Final = b"\x93NUMPY"
#: Bytes of a row of features without a header.
_ROW_BYTES: Final = 1024 * 4


def array_tables(location: str) -> DeclaredTables | None:
    """The tables of a folder of arrays; None for any other location.

    Raises:
        InputError: the number of vertices of a type is not known, or a name has other parts.
    """
    root = local_path(location)
    if root is None or not root.is_dir():
        return None
    root = root.parent if root.name == _FOLDER else root
    folders = sorted(path.parent for path in (root / _FOLDER).glob(f"*/{_EDGES}"))
    found = {folder: _RELATION.fullmatch(folder.name) for folder in folders}
    if not any(found.values()):
        return None
    given: dict[Ends, Table] = {}
    for folder, parts in found.items():
        if parts is None:
            raise InputError(f"{folder}: expected source type, relation and target type with ___ or __ between them")
        given[parts[1], parts[3], parts[4]] = Table((str(folder / _EDGES),), format="npy")
    relations = sorted_relations(given)
    types = sorted({each for source, _, target in given for each in (source, target)})
    stated = _stated(root)
    sizes = {name: stated[name] if name in stated else _size(root, name) for name in types}
    arrays = [name for name in types if _has_header(root / _FOLDER / name / _FEATURES)]
    return DeclaredTables(
        relations,
        [],
        sizes={valid_name(name): count for name, count in sizes.items()},
        data=[TypeVertices.of_files(valid_name(name), **_files(root, name)) for name in arrays],
    )


def _files(root: Path, name: str) -> dict[str, str]:
    """Features of a type, with its labels if there are some, and MAG240M's split of the only type with labels."""
    found = {"feature": root / _FOLDER / name / _FEATURES}
    if _has_header(label := root / _FOLDER / name / _LABELS):
        found["label"] = label
        if (split := root / _SPLIT).is_file():
            found["split"] = split
    return {array: str(path) for array, path in found.items()}


def _stated(root: Path) -> Mapping[str, int]:
    """Numbers of vertices by type that the dataset states.

    Raises:
        InputError: the file has something else.
    """
    path = root / _COUNTS
    if not path.is_file():
        return {}
    content: Mapping[str, Any] = torch_content(open_file(str(path)))
    if wrong := next((name for name, count in content.items() if type(count) is not int or count < 0), None):
        raise InputError(f"{path}, {wrong}: expected a number of vertices, found {str(content[wrong])[:80]!r}")
    return content


def _has_header(path: Path) -> bool:
    """Whether a file is there and says which shape it has."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _size(root: Path, name: str) -> int:
    """The number of vertices of a type, from its features.

    Raises:
        InputError: there are none, or a file without a header has other bytes than rows of IGB.
    """
    path = root / _FOLDER / name / _FEATURES
    if not path.is_file():
        raise InputError(
            f"{path.parent}: the number of vertices of type {name} is not known; add {_FEATURES}, or {root / _COUNTS}"
        )
    if _has_header(path):
        return open_array(open_file(str(path))).shape[0]
    size = path.stat().st_size
    if size % _ROW_BYTES:
        raise InputError(
            f"{path}: the file has no NumPy header, and its {size:,} bytes are not a multiple of {_ROW_BYTES}, "
            "the size of a row in IGB"
        )
    return size // _ROW_BYTES
