"""Triples of head, relation and tail: one type of vertices, and a relation for each name in the middle column.

Knowledge graphs such as FB15k-237 and Wikidata5M are distributed in this form. OpenKE's files begin with the number of
their triples, and have the relation last. Statements of N-Triples may also give the types of the vertices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gnnloom.pipeline.ingest.typed.declared import DeclaredTables
from gnnloom.pipeline.ingest.typed.table import BY_ROW, Table, ValueColumn
from gnnloom.pipeline.sources.ntriples import LINKS, NTRIPLES, RDF_TYPES, TYPES
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.reading.text_layout import Sample, Stated, is_count
from gnnloom.pipeline.sources.vertex_data.table_columns import is_parquet
from gnnloom.storage.errors import InputError

#: The name of the format.
TRIPLES: Final = "triples"
#: The type of all vertices.
TYPE: Final = "entity"
#: Columns of a triple.
_WIDTH: Final = 3


def triples_tables(locations: Sequence[str], options: Mapping[str, Any]) -> DeclaredTables:
    """The table of some files with triples.

    Args:
        options: options of the formats of tables; ``columns`` has the columns of heads, relations and tails, and
            perhaps columns with what they hold, such as ``score as weight``.

    Raises:
        NotFoundError: a file does not exist.
        InputError: the columns are not three, or only some files are of OpenKE.
    """
    names, values = ValueColumn.parse_all(options.get("columns") or (), "columns")
    if names and len(names) != _WIDTH:
        raise InputError(f"columns {','.join(names)}: expected three columns: heads, relations and tails")
    files = open_files(locations)
    stated = [None if is_parquet(file.location) else _stated_count(file, options) for file in files]
    counts = tuple(count for count in stated if count is not None)
    if counts and len(counts) < len(files):
        other = files[stated.index(None)].location
        raise InputError(f"{other}: does not begin with the number of its triples, as other files do; name it apart")
    header: tuple[tuple[str, Any], ...] = ()
    if counts:
        head, relation, tail = names or ("1", "3", "2")
        header = (("header", True),)
    else:
        head, relation, tail = names or _first_columns(files)
    # Without names of columns, a further field would be left out unnoticed.
    width = 0 if names else _WIDTH
    table = Table(tuple(locations), (head, tail), kinds=relation, options=header, width=width, counts=counts)
    table = table.with_values(values, "columns")
    return DeclaredTables([((TYPE, BY_ROW, TYPE), table)], [])


def statement_tables(locations: Sequence[str], options: Mapping[str, Any]) -> DeclaredTables:
    """The tables of some files of N-Triples: of relations, and of the types of vertices if they are asked for."""
    files, rdf_type = tuple(locations), options.get("rdf_type") or RDF_TYPES[0]
    subject, predicate, target = LINKS
    relations = Table(files, (subject, target), kinds=predicate, format=NTRIPLES)
    vertices: list[tuple[str, Table]] = []
    if rdf_type != RDF_TYPES[0]:
        takes_first = rdf_type == "first"
        instance, kind = TYPES
        types = Table(files, (instance,), kinds=kind, format=NTRIPLES, space=TYPE, takes_first=takes_first)
        vertices.append((BY_ROW, types))
        # Vertices without a type are in no other list, so that this type counts.
        ends = (subject, target) if takes_first else ()
        vertices += [(TYPE, Table(files, (end,), format=NTRIPLES, space=TYPE)) for end in ends]
    return DeclaredTables([((TYPE, BY_ROW, TYPE), relations)], vertices)


def _stated_count(file: SourceFile, options: Mapping[str, Any]) -> int | None:
    """Number of triples that the first line of a file states; None if the first line is a triple.

    Raises:
        InputError: a field of the first line is empty.
    """
    between = options.get("delimiter") or ""
    sample = Sample.of(file, Stated(separator=b"\t" if between == "tab" else between.encode()))
    if sample.rows and not all(sample.rows[0].fields[:_WIDTH]) and not options.get("columns"):
        # The header of a table with numbers of rows begins so too, which would leave the line out unnoticed.
        raise InputError(f"{file.location}, line {sample.rows[0].line}: a field of the triple is empty")
    if len(sample.rows) < 2 or len(sample.rows[0].fields) != 1 or len(sample.rows[1].fields) < _WIDTH:
        return None
    count = sample.rows[0].fields[0]
    return int(count) if is_count(count) else None


def _first_columns(files: Sequence[SourceFile]) -> tuple[str, str, str]:
    """The first three columns: names in Parquet, and numbers in text."""
    if not is_parquet(files[0].location):
        return "1", "2", "3"
    from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable  # noqa: PLC0415 - only Parquet needs it

    found = ParquetTable.open(files[0]).names
    if len(found) < _WIDTH:
        raise InputError(f"{files[0].location}: expected columns of heads, relations and tails, found {len(found)}")
    return found[0], found[1], found[2]
