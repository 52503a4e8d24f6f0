"""Datasets on disk and every way to read them; this file exports the public API.

Imports NumPy, Zarr and numba, and no other part of gnnloom. Zarr and numba are imported only when arrays are written
or computed with, so that a listing does not wait for them. From bottom to top, each room imports only those before it:
``errors``, ``meters``, ``kernel_cache``, ``kernels`` and ``descriptors``; ``format`` and ``matrix``, which do not
import each other; ``artifacts``; ``catalog``; ``runs``; ``checks`` and ``sampling``; ``upkeep``; ``public``. A new kind
of artifact goes into ``artifacts``, a new check into ``checks``, a new method of datasets into ``upkeep`` and
``public``. The exported names are imported when they are first used, so that a module of storage does not import all
others.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnnloom.storage.artifacts.graph import Graph
    from gnnloom.storage.artifacts.partition import Partition
    from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
    from gnnloom.storage.artifacts.vertices import Vertices
    from gnnloom.storage.errors import GnnloomError
    from gnnloom.storage.format.arrays import ReadCounter
    from gnnloom.storage.matrix.csr import CSR
    from gnnloom.storage.public import Catalog, Dataset
    from gnnloom.storage.shards.row_shards import RowShards

__all__ = [
    "CSR",
    "Catalog",
    "Dataset",
    "GnnloomError",
    "Graph",
    "Partition",
    "ReadCounter",
    "RowShards",
    "TypedGraph",
    "Vertices",
]

#: Module of each exported name.
_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "CSR": "gnnloom.storage.matrix.csr",
        "Catalog": "gnnloom.storage.public",
        "Dataset": "gnnloom.storage.public",
        "GnnloomError": "gnnloom.storage.errors",
        "Graph": "gnnloom.storage.artifacts.graph",
        "Partition": "gnnloom.storage.artifacts.partition",
        "ReadCounter": "gnnloom.storage.format.arrays",
        "RowShards": "gnnloom.storage.shards.row_shards",
        "TypedGraph": "gnnloom.storage.artifacts.typed.typed_graph",
        "Vertices": "gnnloom.storage.artifacts.vertices",
    }
)


def __getattr__(name: str) -> Any:
    """Import an exported name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    # Found without this function from now on.
    globals()[name] = value
    return value
