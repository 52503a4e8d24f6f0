"""A table that pandas, polars, csv, Excel, R or Spark writes reads back to the same edges, or is refused."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.sources.names import NamedEdgeSource
from gnnloom.storage.errors import InputError
from support.covering import examples

Pairs = list[tuple[Any, Any]]
Writer = Callable[[Path, Pairs, tuple[str, str]], Path]

_NUMBERS = st.integers(0, 10**15)
#: Names without line ends and tabs, which formats of text cannot all hold.
_NAMES = st.text(
    st.sampled_from("abcxyzABZ019 .,;:|#%'\"\\-_/@()[]{}+=&<>!?é中🎈"), min_size=1, max_size=9
).filter(lambda name: name == name.strip() and name.strip("0123456789.,; ") != "")  # fmt: skip
_HEADERS = st.sampled_from([("src", "dst"), ("source", "target"), ("from", "to")])


def read_back(path: Path, **options: Any) -> Pairs:
    """The edges of a file, with ids as the text of names or numbers."""
    source = open_edges(None, [str(path)], options)
    pairs: Pairs = []
    if isinstance(source, NamedEdgeSource) and source.begins_with_names():
        for span in source.ranges():
            for chunk in source.read_names(span):
                pairs += [(a.decode(), b.decode()) for a, b in zip(chunk.source, chunk.target, strict=True)]
        return pairs
    for span in source.ranges():
        for numbers in source.read(span):
            pairs += zip(numbers.source.tolist(), numbers.target.tolist(), strict=True)
    return pairs


def by_csv(**dialect: Any) -> Writer:
    def write(folder: Path, pairs: Pairs, header: tuple[str, str]) -> Path:
        path = folder / ("e.tsv" if dialect.get("delimiter") == "\t" else "e.csv")
        with path.open("w", newline="", encoding=dialect.get("encoding", "utf-8")) as stream:
            settings_of = {name: value for name, value in dialect.items() if name != "encoding"}
            csv.writer(stream, **settings_of).writerows([header, *pairs])
        return path

    return write


def by_pandas(**options: Any) -> Writer:
    def write(folder: Path, pairs: Pairs, header: tuple[str, str]) -> Path:
        path = folder / "e.csv"
        pd.DataFrame(pairs, columns=list(header)).to_csv(path, **options)
        return path

    return write


def floats_of_pandas(folder: Path, pairs: Pairs, header: tuple[str, str]) -> Path:
    """Columns with gaps become floats, and numbers get a point and a zero."""
    frame = pd.DataFrame(pairs, columns=list(header))
    if all(isinstance(end, int) for pair in pairs for end in pair):
        frame = frame.astype(float)
    frame.to_csv(folder / "e.csv", index=False)
    return folder / "e.csv"


def by_arrow(folder: Path, pairs: Pairs, header: tuple[str, str]) -> Path:
    table = pa.table({name: [pair[end] for pair in pairs] for end, name in enumerate(header)})
    pyarrow.csv.write_csv(table, folder / "e.csv")
    return folder / "e.csv"


def by_parquet(folder: Path, pairs: Pairs, header: tuple[str, str]) -> Path:
    pd.DataFrame(pairs, columns=list(header)).to_parquet(folder / "e.parquet")
    return folder / "e.parquet"


def by_polars(folder: Path, pairs: Pairs, header: tuple[str, str]) -> Path:
    polars = pytest.importorskip("polars")
    polars.DataFrame(pairs, schema=list(header), orient="row").write_csv(folder / "e.csv")
    return folder / "e.csv"


def by_r(*, separator: str = " ", row_names: bool, corner: bool) -> Writer:
    """R's write.table, and write.csv, which has a name, an empty one, for the column of row names."""

    def quoted(value: Any) -> str:
        return str(value) if isinstance(value, int) else '"' + str(value).replace('"', '""' if corner else '\\"') + '"'

    def write(folder: Path, pairs: Pairs, header: tuple[str, str]) -> Path:
        lines = [[*(['""'] if row_names and corner else []), *map(quoted, header)]]
        for number, pair in enumerate(pairs):
            lines.append([*([quoted(str(number + 1))] if row_names else []), *map(quoted, pair)])
        path = folder / ("e.csv" if separator == "," else "e.txt")
        path.write_text("".join(f"{separator.join(line)}\n" for line in lines))
        return path

    return write


def by_spark(folder: Path, pairs: Pairs, header: tuple[str, str]) -> Path:
    """Spark escapes quotes with a backslash, and quotes only fields with a separator or a quote."""

    def field(value: Any) -> str:
        text = str(value)
        special = any(sign in text for sign in ',"\n\r') or text != text.strip()
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' if special else text

    text = io.StringIO()
    for row in (header, *pairs):
        text.write(",".join(map(field, row)) + "\n")
    path = folder / "part-00000-c000.csv"
    path.write_text(text.getvalue())
    return path


def by_excel_as_unicode(folder: Path, pairs: Pairs, header: tuple[str, str]) -> Path:
    """ "Unicode text" of Excel: tabs, UTF-16 with a mark, and carriage returns."""
    text = io.StringIO(newline="")
    csv.writer(text, "excel-tab").writerows([header, *pairs])
    path = folder / "e.txt"
    path.write_bytes(text.getvalue().encode("utf-16"))
    return path


WRITERS: dict[str, Writer] = {
    "csv": by_csv(),
    "csv, all quoted": by_csv(quoting=csv.QUOTE_ALL),
    "csv, words quoted": by_csv(quoting=csv.QUOTE_NONNUMERIC),
    "csv, never quoted": by_csv(quoting=csv.QUOTE_NONE, escapechar="\\"),
    "csv, semicolons and a mark": by_csv(delimiter=";", encoding="utf-8-sig"),
    "csv, bars": by_csv(delimiter="|"),
    "csv, tabs": by_csv(delimiter="\t", lineterminator="\n"),
    "pandas with its index": by_pandas(),
    "pandas": by_pandas(index=False),
    "pandas, semicolons": by_pandas(index=False, sep=";"),
    "pandas, floats": floats_of_pandas,
    "arrow": by_arrow,
    "parquet": by_parquet,
    "polars": by_polars,
    "R's write.table": by_r(row_names=True, corner=False),
    "R's write.table without row names": by_r(row_names=False, corner=False),
    "R's write.csv": by_r(separator=",", row_names=True, corner=True),
    "Spark": by_spark,
    "Excel's Unicode text": by_excel_as_unicode,
}  # fmt: skip


@pytest.mark.parametrize("writer", WRITERS)
@settings(max_examples=8, deadline=None)
@given(pairs=st.lists(st.tuples(_NUMBERS, _NUMBERS), min_size=1, max_size=12), header=_HEADERS)
def test_numbers_read_back_from_every_writer(writer: str, pairs: Pairs, header: tuple[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert read_back(WRITERS[writer](Path(folder), pairs, header)) == pairs


#: Writers that put a backslash before quotes and backslashes, which are characters like any other to gnnloom.
_ESCAPING = ("csv, never quoted", "Spark")


@pytest.mark.parametrize("writer", WRITERS)
@settings(max_examples=examples(20), deadline=None)
@given(pairs=st.lists(st.tuples(_NAMES, _NAMES), min_size=2, max_size=12), header=_HEADERS)
def test_names_read_back_from_every_writer_or_are_refused(writer: str, pairs: Pairs, header: tuple[str, str]) -> None:
    if writer in _ESCAPING:
        escaped = str.maketrans('\\"', "__")
        pairs = [(source.translate(escaped), target.translate(escaped)) for source, target in pairs]
    with tempfile.TemporaryDirectory() as folder:
        path = WRITERS[writer](Path(folder), pairs, header)
        try:
            found = read_back(path)
        except InputError:
            return
        assert found == pairs


@pytest.mark.parametrize("writer", WRITERS)
def test_plain_names_are_not_refused(writer: str, tmp_path: Path) -> None:
    pairs = [(f"user {a}", f"item-{b}") for a, b in np.random.default_rng(0).integers(0, 9, (30, 2)).tolist()]
    assert read_back(WRITERS[writer](tmp_path, pairs, ("source", "target"))) == pairs
