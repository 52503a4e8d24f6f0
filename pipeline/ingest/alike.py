"""Stores vertex data in the form of existing vertex data: the same columns, categories, means and class numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.vertex_data.chosen.column_sources import ColumnVertices, KeyedColumns
from gnnloom.pipeline.sources.vertex_data.chosen.like import like_known
from gnnloom.pipeline.sources.vertex_data.chosen.surveys import KnownColumns
from gnnloom.pipeline.sources.vertex_data.keyed import KeyedVertices
from gnnloom.pipeline.sources.vertex_data.keyed_rows import KeyedText
from gnnloom.pipeline.sources.vertex_data.text_vertices import TextVertices
from gnnloom.pipeline.sources.vertex_data.vertex_files import JoinedVertices
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted


def stored_like(source: VertexSource, like: Vertices) -> VertexSource:
    """Make a source store its features and labels in the form of existing vertex data.

    Columns of words become the same categories, missing values the same means, and names of classes the same numbers.

    Raises:
        InputError: the features are other columns, or another number of columns; or a label is none of the classes.
    """
    known = KnownColumns(tuple(like.feature_columns), like.class_names, str(like.artifact.path))
    found: VertexSource = _alike(source, known)
    if "feature" in source.arrays and like.has_feature:
        width = found.num_columns("feature")
        if width != like.num_features:
            before = counted(like.num_features, "feature")
            raise InputError(f"feature: {counted(width, 'column')}, but {like.artifact.path} has {before}")
    return found


def _alike(source: Any, known: KnownColumns) -> Any:
    match source:
        case JoinedVertices():
            return replace(source, sources=tuple(_alike(each, known) for each in source.sources))
        case ColumnVertices():
            return replace(source, chosen=like_known(source.chosen, known))
        case KeyedVertices(rows=KeyedColumns() as rows):
            return replace(source, rows=replace(rows, chosen=like_known(rows.chosen, known)))
        case KeyedVertices(rows=KeyedText(named=named) as rows) if named is not None:
            return replace(source, rows=replace(rows, named=named.like(known.class_names, known.where)))
        case TextVertices(named=named) if named is not None:
            return replace(source, named=named.like(known.class_names, known.where))
    return source
