"""All layouts of datasets with types that describe themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from gnnloom.pipeline.ingest.typed.declared import DeclaredTables
from gnnloom.pipeline.ingest.typed.folders.arrays import array_tables
from gnnloom.pipeline.ingest.typed.folders.chunked import chunked_tables
from gnnloom.pipeline.ingest.typed.folders.gconstruct import gconstruct_tables
from gnnloom.pipeline.ingest.typed.folders.graphbolt import graphbolt_tables
from gnnloom.pipeline.ingest.typed.folders.hetero import hetero_tables
from gnnloom.pipeline.ingest.typed.folders.ogb import ogb_tables

#: The layouts, each None for any other location; layouts that one file decides come first.
_LAYOUTS: Final[tuple[Callable[[str], DeclaredTables | None], ...]] = (
    graphbolt_tables,
    chunked_tables,
    gconstruct_tables,
    array_tables,
    ogb_tables,
)


def described_tables(
    location: str, format_name: str | None, options: Mapping[str, Any] = MappingProxyType({})
) -> DeclaredTables | None:
    """The tables of a dataset with types that describes itself; None for any other location.

    Args:
        format_name: the given format; None if there is none. Only OGB's and PyG's layouts are called by their formats.
        options: options of the format.

    Raises:
        NotFoundError: a file of the dataset does not exist.
        InputError: a file does not have what it should.
    """
    if format_name in {None, "pyg"} and (found := hetero_tables(location, options.get("split_index"))) is not None:
        return found
    layouts = _LAYOUTS if format_name is None else (ogb_tables,) if format_name == "ogb" else ()
    return next((found for each in layouts if (found := each(location)) is not None), None)
