"""OGB's layout of a dataset with several types of vertices, as ogbn-mag and ogbl-biokg have it.

    raw/num-node-dict.csv.gz         types in the first line, and their numbers of vertices in the second
    raw/triplet-type-list.csv.gz     head, relation and tail of each relation, a line each
    raw/relations/HEAD___RELATION___TAIL/edge.csv.gz            heads and tails, numbered from 0 within their types
    raw/relations/HEAD___RELATION___TAIL/num-edge-list.csv.gz   number of edges

    raw/node-feat/TYPE/node-feat.csv.gz      features of a type, a row for each vertex
    raw/node-label/TYPE/node-label.csv.gz    classes, -1 or nan for none
    split/NAME/TYPE/{train,valid,test}.csv.gz   vertices of each part of the split

Each file may also be uncompressed, without ``.gz``. Years and further files of edges are not read.
Hu et al., Open Graph Benchmark (NeurIPS 2020).
"""

from __future__ import annotations

import csv
import glob
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gnnloom.pipeline.ingest.typed.declared import DeclaredTables
from gnnloom.pipeline.ingest.typed.folders.description import read_text, sorted_relations
from gnnloom.pipeline.ingest.typed.table import Ends, Table
from gnnloom.pipeline.ingest.typed.type_vertices import TypeVertices
from gnnloom.pipeline.sources.reading.files import SourceFile, find_table, is_folder
from gnnloom.pipeline.sources.reading.text_columns import read_count
from gnnloom.pipeline.sources.reading.text_layout import is_count
from gnnloom.pipeline.sources.vertex_data.ogb_vertices import ogb_root, required_file
from gnnloom.storage.artifacts.typed.typed_names import valid_name
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import InputError

#: The file that lists the relations.
_RELATIONS: Final = "raw/triplet-type-list"
_BETWEEN: Final = "___"
#: Bytes of the name of a folder, at most.
_LONGEST: Final = 255


def ogb_tables(location: str) -> DeclaredTables | None:
    """The tables of a folder of OGB with several types; None for any other location.

    Raises:
        NotFoundError: a file of the folder does not exist.
        InputError: a file does not have what it should.
    """
    if not is_folder(location):
        return None
    root = ogb_root(str(user_path(location.removeprefix("file://"))))
    listed = find_table(root, _RELATIONS)
    if listed is None:
        return None
    counts = _counts(required_file(root, "raw/num-node-dict"))
    triplets = _triplets(listed, counts)
    given: dict[Ends, Table] = {}
    for triplet in triplets:
        where = f"raw/relations/{_BETWEEN.join(triplet)}"
        edges = required_file(root, f"{where}/edge")
        number = read_count(required_file(root, f"{where}/num-edge-list"))
        given[triplet] = Table((edges.location,), ("1", "2"), options=(("header", False),), width=2, counts=(number,))
    sizes = {valid_name(name): count for name, count in counts.items()}
    return DeclaredTables(sorted_relations(given), [], "snap", sizes, _data(root, counts))


def _data(root: str, names: Iterable[str]) -> list[TypeVertices]:
    """Features, labels and split of the types that have files of features or labels."""
    found = []
    for name in names:
        files = {"feature": find_table(root, f"raw/node-feat/{name}/node-feat")}
        files["label"] = find_table(root, f"raw/node-label/{name}/node-label")
        given = {array: file.location for array, file in files.items() if file is not None}
        splits = sorted(str(path) for path in Path(root, "split").glob(f"*/{glob.escape(name)}") if path.is_dir())
        if len(splits) > 1:
            raise InputError(f"{root}/split: several splits of type {name} ({', '.join(splits)}); keep only one")
        if given:
            found.append(TypeVertices.of_files(valid_name(name), **given, **({"split": splits[0]} if splits else {})))
    return found


def _lines(file: SourceFile) -> list[list[str]]:
    """The lines of a small file, as cells; raises as :func:`read_text` does."""
    lines = csv.reader(read_text(file).splitlines())
    return [[cell.strip() for cell in row] for row in lines if any(map(str.strip, row))]


def _counts(file: SourceFile) -> dict[str, int]:
    """Number of vertices by type."""
    rows = _lines(file)
    if len(rows) != 2 or len(rows[0]) != len(rows[1]) or not all(map(is_count, rows[1])):
        raise InputError(f"{file.location}: expected a line of types, and a line of their numbers of vertices")
    if len(set(map(valid_name, rows[0]))) < len(rows[0]):
        raise InputError(f"{file.location}, line 1: two types have one name")
    return dict(zip(rows[0], map(int, rows[1]), strict=True))


def _triplets(file: SourceFile, counts: dict[str, int]) -> list[Ends]:
    """Head, relation and tail of each relation."""
    found: list[Ends] = []
    for number, row in enumerate(_lines(file), 1):
        where = f"{file.location}, line {number}"
        if len(row) != 3 or not all(row):
            raise InputError(f"{where}: expected the type of the heads, a relation and the type of the tails")
        head, word, tail = row
        if unknown := next((each for each in (head, tail) if each not in counts), None):
            raise InputError(f"{where}: type {unknown!r}, and raw/num-node-dict has {', '.join(counts)}")
        # The parts name a folder.
        if len(_BETWEEN.join(row).encode()) > _LONGEST or not all(map(str.isprintable, row)):
            raise InputError(f"{where}: expected names that a folder can have, of at most {_LONGEST} bytes in total")
        if any("/" in each or "\\" in each or each.startswith(".") for each in row) or (head, word, tail) in found:
            raise InputError(f"{where}: a relation that is there twice, or whose name is a path")
        found.append((head, word, tail))
    if not found:
        raise InputError(f"{file.location}: expected a line for each relation, found none")
    return found
