"""Ids that are distinct within their types only: the type and the id of an end together are the name of its vertex.

BioKG numbers the vertices of each type from 0, so disease 0 and protein 0 are the names ``disease::0`` and
``protein::0``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnnloom.pipeline.ingest.keys.kinds import with_kinds
from gnnloom.pipeline.sources.names import NameChunk, NamedEdgeSource, Names
from gnnloom.pipeline.sources.parquet_edges import ParquetEdges
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.understood import Understood
from gnnloom.storage.errors import InputError


@dataclass(frozen=True)
class JoinedIds:
    """Edges between names of types and ids; implements :class:`~gnnloom.pipeline.sources.names.NamedEdgeSource`.

    Attributes:
        edges: the ids, and the values of the edges.
        types: the types of both ends, as the ends of edges of the same rows.
        separator: what is between a type and an id.
        location: the table, for messages.
    """

    edges: TextEdges | ParquetEdges
    types: NamedEdgeSource
    separator: str
    location: str

    def identity(self) -> dict[str, Any]:
        return {**self.edges.identity(), "types": self.types.identity(), "joined": self.separator}

    def num_vertices(self) -> int | None:
        return None

    def ranges(self) -> Sequence[SourceRange]:
        return self.edges.ranges()

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        """Raises InputError: the ids are names."""
        where = f"{self.location} from {span.start:,}"
        raise InputError(f"{where}: ids that are joined with types are names, not numbers")

    def begins_with_names(self) -> bool:
        return True

    def as_named(self) -> JoinedIds:
        return self

    @property
    def times(self) -> bool:
        """Whether edges have times."""
        return self.edges.times

    @property
    def time_unit(self) -> str:
        """The unit of times that are dates."""
        return self.edges.time_unit

    def read_names(self, span: SourceRange) -> Iterator[NameChunk]:
        """Read one range.

        Raises:
            InputError: an id or a type cannot be read, or a type has the separator.
        """
        ids = self.edges.as_named().read_names(span)
        for chunk, types in with_kinds(ids, self.types.read_names(span), self.location):
            source, target = self._joined(types.source, chunk.source), self._joined(types.target, chunk.target)
            yield replace(chunk, source=source, target=target)

    def _joined(self, types: Names, ids: Names) -> Names:
        import pyarrow as pa  # noqa: PLC0415 - only names need it
        import pyarrow.compute as pc  # noqa: PLC0415

        words = types.to_arrow()
        has_separator = pc.match_substring(words, self.separator)
        if pc.any(has_separator).as_py():
            word = words.filter(has_separator)[0].as_py().decode("utf-8", "replace")
            raise InputError(
                f"{self.location}: the type {word!r} has {self.separator!r}; join types and ids by another separator"
            )
        between = pa.scalar(self.separator.encode(), pa.large_binary())
        return Names.from_arrow(pc.binary_join_element_wise(words, ids.to_arrow(), between))

    def understood(self) -> list[Understood]:
        """Describes how each file is read."""
        ids = f"ids are names: the type, {self.separator} and the id"
        return [
            replace(each, are_names=True, sentences=(*each.sentences[:-1], ids), facts={**each.facts, "ids": "names"})
            for each in self.edges.understood()
        ]
