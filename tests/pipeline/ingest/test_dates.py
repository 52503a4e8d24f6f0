"""Times that are dates are stored as whole numbers of a unit since 1970, to the last digit, or refused."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import gnnloom
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.sources.reading.times import find_times, parse_time
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.ticks import MOST_TICKS, floats_of_ticks, ticks_of_floats
from gnnloom.workflows.cli.main import cli
from support.covering import few_of

EDGES = [(0, 1), (1, 2), (2, 0), (3, 1), (1, 0)]
ISO = [
    "2024-03-05T10:11:12Z",
    "2024-03-05T10:11:12.000001Z",
    "1969-12-31T23:59:59.5-00:30",
    "2000-02-29 00:00+14:00",
    "9999-12-31t23:59:59.999999z",
]


def ingest(folder: Path, source: Any, name: str = "calls", **options: Any) -> Graph:
    how: dict[str, Any] = {
        "times": True,
        "merge": "max",
        "self_loops": "keep",
        "workers": 0,
        "catalog": folder / "catalog",
    }
    return gnnloom.ingest(name, source, **(how | options)).graph()


def _moment(value: Any, unit: Any) -> np.datetime64:
    """A stored time, or its text, in some unit."""
    return np.datetime64(value, unit)


def times_of(graph: Graph) -> dict[tuple[Any, Any], int]:
    """The stored time of each edge, by the ids of its source and target."""
    found: dict[tuple[Any, Any], int] = {}
    for number, block in enumerate(graph.blocks()):
        reader = graph.times(number)
        assert reader is not None
        assert reader.dtype == np.int64
        times = reader.read(0, len(reader))
        rows = np.repeat(np.arange(block.num_rows) + block.row_offset, np.diff(block.indptr))
        found |= dict(zip(zip(block.indices.tolist(), rows.tolist(), strict=True), times.tolist(), strict=True))
    return found


def ticks(text: str, unit: str = "us") -> int:
    zoned = pd.Timestamp(text)
    return int((zoned.tz_convert(None) if zoned.tz else zoned).to_numpy().astype(f"M8[{unit}]").astype(np.int64))


def expected(times: list[str], unit: str = "us") -> dict[tuple[int, int], int]:
    return {edge: ticks(time, unit) for edge, time in zip(EDGES, times, strict=True)}


def python_ticks(text: str) -> int:
    moment = dt.datetime.fromisoformat(text.replace("z", "Z").replace("t", "T"))
    moment = moment.replace(tzinfo=moment.tzinfo or dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


@pytest.mark.slow
@pytest.mark.parametrize("ids", ["keep", "compact", "names"])
@pytest.mark.parametrize(("separator", "quote"), [(",", ""), (",", '"'), (";", ""), ("\t", ""), ("|", ""), ("::", "")])
def test_dates_in_text_are_those_of_python(tmp_path: Path, ids: str, separator: str, quote: str) -> None:
    rows = zip(EDGES, ISO, strict=True)
    lines = [separator.join([str(source), str(target), f"{quote}{time}{quote}"]) for (source, target), time in rows]
    (tmp_path / "calls.txt").write_text("\n".join(lines))
    graph = ingest(tmp_path, tmp_path / "calls.txt", ids=ids, header=False)
    assert graph.time_unit == "us"
    wanted = {edge: python_ticks(time) for edge, time in zip(EDGES, ISO, strict=True)}
    assert times_of(graph) == wanted
    check_artifact(Catalog(tmp_path / "catalog")["calls"], graph.artifact)


@pytest.mark.parametrize("columns", ["who,whom,when", "2,4,3"])
def test_dates_are_found_by_the_name_or_the_number_of_their_column(tmp_path: Path, columns: str) -> None:
    lines = ["minutes,who,when,whom,note"]
    lines += [f"3,{source},{time},{target},x" for (source, target), time in zip(EDGES, ISO, strict=True)]
    (tmp_path / "calls.csv.gz").write_bytes(gzip.compress("\r\n".join(lines).encode()))
    graph = ingest(tmp_path, tmp_path / "calls.csv.gz", columns=columns)
    assert times_of(graph) == {edge: python_ticks(time) for edge, time in zip(EDGES, ISO, strict=True)}


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (["2024-03-05", "2024-03-06", "1970-01-01", "1969-12-31", "0001-01-01"], "us"),
        (["2024-03-05 10:11:12", "2024-03-06 00:00:00.5", "1970-01-01", "1969-12-31 23:59", "2000-02-29"], "us"),
        (["2024-03-05T10:11:12.123456789Z"] * 4 + ["2024-03-05T10:11:12.123456780Z"], "ns"),
        (["2024-03-05T10:11:12.123456000Z"] * 5, "ns"),
    ],
)
def test_every_digit_of_a_date_is_kept(tmp_path: Path, times: list[str], unit: str) -> None:
    lines = [f"{source},{target},{time}\n" for (source, target), time in zip(EDGES, times, strict=True)]
    (tmp_path / "calls.csv").write_text("".join(lines))
    graph = ingest(tmp_path, tmp_path / "calls.csv")
    assert graph.time_unit == unit
    found = {edge: _moment(value, unit) for edge, value in times_of(graph).items()}
    wanted = {edge: _moment(time.rstrip("Z"), unit) for edge, time in zip(EDGES, times, strict=True)}
    assert found == wanted


@pytest.mark.parametrize(
    ("third", "reason", "ids"),
    few_of(
        [
            pytest.param(
                "2024-13-05T10:11:12Z", "expected a time such as 2024-03-05T10:11:12.*found '2024-13-05T10:11:12Z'"
            ),
            pytest.param("2023-02-29T10:11:12Z", "expected a time such as"),
            pytest.param("2024-03-05T24:11:12Z", "expected a time such as"),
            pytest.param("2024-03-05T10:11:12+25:00", "expected a time such as"),
            pytest.param("2024-03-05T10:11:12", r"with a zone \(Z or an offset\)"),
            pytest.param("1709633472", "expected a time such as"),
            pytest.param("", "expected a time such as.*found ''"),
            pytest.param("NaT", "expected a time such as"),
            pytest.param("2024-03-05T10:11:12.1234567Z", "up to 6 digits after the point"),
        ],
        ["keep", "names"],
        together=1,
    ),
)
def test_another_time_is_an_error_with_its_line(tmp_path: Path, third: str, reason: str, ids: str) -> None:
    # Beyond the lines that are looked at first.
    rows = [f"{k},{k + 1},2024-03-05T10:11:12Z" for k in range(4000)]
    rows[3500] = f"1,2,{third}"
    (tmp_path / "calls.csv").write_text("\n".join(rows))
    with pytest.raises(InputError, match=f"calls.csv, line 3,?501.*{reason}"):
        ingest(tmp_path, tmp_path / "calls.csv", ids=ids)
    assert not list((tmp_path / "catalog").rglob("block"))


def test_a_date_and_a_time_of_day_between_blanks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "calls.txt").write_text("1 2 2024-03-05 10:11:12\n2 3 2024-03-05 10:11:13\n")
    with pytest.raises(InputError, match=r"line 1:.*11.*12"):
        ingest(tmp_path, tmp_path / "calls.txt", extra_columns=True)


def test_more_columns_than_three_are_refused_as_among_numbers(tmp_path: Path) -> None:
    (tmp_path / "calls.csv").write_text("1,2,2024-03-05T10:11:12Z,7\n")
    with pytest.raises(InputError, match=r"line 1.*columns"):
        ingest(tmp_path, tmp_path / "calls.csv")
    assert len(times_of(ingest(tmp_path, tmp_path / "calls.csv", extra_columns=True))) == 1


def test_files_have_dates_or_numbers_and_the_finest_unit(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2,2024-03-05T10:11:12Z\n")
    (tmp_path / "b.csv").write_text("2,3,2024-03-05T10:11:12.000000001Z\n")
    (tmp_path / "c.csv").write_text("2,3,17\n")
    graph = ingest(tmp_path, [tmp_path / "a.csv", tmp_path / "b.csv"])
    assert (graph.time_unit, times_of(graph)[2, 3] - times_of(graph)[1, 2]) == ("ns", 1)
    with pytest.raises(InputError, match=r"c.csv:"):
        ingest(tmp_path, [tmp_path / "a.csv", tmp_path / "c.csv"], "other")


DATES = ["2024-03-05 10:11:12", "1969-12-31 23:59:59", "2261-01-01", "1679-01-01", "2024-03-05 10:11:13"]


@pytest.mark.parametrize(("unit", "zone"), few_of(["s", "ms", "us", "ns"], [None, "UTC", "Europe/Berlin"], together=1))
def test_timestamps_of_parquet_keep_their_unit(tmp_path: Path, unit: str, zone: str | None) -> None:
    ends = np.array(EDGES).T
    values = [pd.Timestamp(each, tz=zone) for each in DATES]
    when = pa.array([ticks(each.tz_convert("UTC").isoformat() if zone else str(each), unit) for each in values])
    table = pa.table({"a": ends[0], "b": ends[1], "t": when.cast(pa.timestamp(unit, zone))})
    # Parquet has no seconds.
    pa.parquet.write_table(table, tmp_path / "calls.parquet")
    graph = ingest(tmp_path, tmp_path / "calls.parquet", columns="a,b,t")
    assert graph.time_unit == ("ms" if unit == "s" else unit)
    wanted = [_moment(each, graph.time_unit) for each in when.to_numpy().astype(f"M8[{unit}]")]
    assert [_moment(times_of(graph)[edge], graph.time_unit) for edge in EDGES] == wanted


@pytest.mark.parametrize("ids", ["keep", "names"])
def test_dates_as_text_in_parquet_are_those_of_text_files(tmp_path: Path, ids: str) -> None:
    ends = np.array(EDGES).T
    table = pa.table({"a": ends[0].astype(str), "b": ends[1].astype(str), "t": pa.array(ISO)})
    pa.parquet.write_table(table, tmp_path / "calls.parquet", row_group_size=2)
    graph = ingest(tmp_path, tmp_path / "calls.parquet", columns="a,b,t", ids=ids)
    assert sorted(times_of(graph).values()) == sorted(map(python_ticks, ISO))
    pa.parquet.write_table(table.set_column(2, "t", pa.array([*ISO[:-1], "soon"])), tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=r"column t, row 4:.*'soon'"):
        ingest(tmp_path, tmp_path / "bad.parquet", "bad", columns="a,b,t", ids=ids)
    pa.parquet.write_table(table.set_column(2, "t", pa.array(["soon", *ISO[1:]])), tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=r"column t, row 0:"):
        ingest(tmp_path, tmp_path / "bad.parquet", "worse", columns="a,b,t", ids=ids)


def test_frames_and_arrays_with_dates_are_read_from_python(tmp_path: Path) -> None:
    moments = pd.to_datetime(["2024-03-05 10:11:12", "2024-03-06 00:00:00"])
    pandas = pd.DataFrame({"a": ["x", "y"], "b": ["y", "z"], "t": moments})
    frames = {"pandas": pandas, "days": pandas.assign(t=moments.date), "arrow": pa.Table.from_pandas(pandas)}
    if find_spec("polars"):
        frames["polars"] = import_module("polars").from_pandas(pandas)
    for name, frame in frames.items():
        graph = ingest(tmp_path, frame, name, columns=["a", "b", "t"], ids="compact")
        first = np.datetime64("2024-03-05" if name == "days" else "2024-03-05T10:11:12")
        assert _moment(times_of(graph)[0, 1], graph.time_unit) == first
    np.savez(tmp_path / "e.npz", edge_index=np.array([[0, 1], [1, 2]]), edge_time=moments.to_numpy("M8[ns]"))
    graph = ingest(tmp_path, tmp_path / "e.npz", "npz")
    assert (graph.time_unit, np.datetime64(times_of(graph)[1, 2], "ns")) == ("ns", np.datetime64("2024-03-06"))


def test_missing_dates_are_an_error_with_their_place(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [0, 1], "b": [1, 2], "t": pd.to_datetime(["2024-03-05", None])})
    with pytest.raises(InputError, match=r"t.*row 1"):
        ingest(tmp_path, frame, columns=["a", "b", "t"])
    np.savez(tmp_path / "e.npz", edge_index=np.array([[0, 1], [1, 2]]), edge_time=frame["t"].to_numpy("M8[ns]"))
    with pytest.raises(InputError, match=r"edge 1:.*1970"):
        ingest(tmp_path, tmp_path / "e.npz")
    with pytest.raises(InputError, match=r"expected numbers, found datetime64|expected numbers, found timestamp"):
        ingest(tmp_path, frame[:1], "weights", columns=["a", "b", "t"], times=False, merge=None)


def test_merged_edges_have_the_last_or_the_first_date(tmp_path: Path) -> None:
    times = ["2024-03-05T10:11:12.000000002Z", "1960-01-01T00:00:00Z", "2024-03-05T10:11:12.000000001Z"]
    (tmp_path / "calls.csv").write_text("".join(f"1,2,{time}\n" for time in times))
    for merge, at in (("max", 0), ("min", 1), ("first", 0)):
        graph = ingest(tmp_path, tmp_path / "calls.csv", merge, merge=merge)
        assert times_of(graph) == {(1, 2): int(np.datetime64(times[at].rstrip("Z"), "ns").astype(np.int64))}


def test_links_by_time_hold_out_the_latest_dates(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends = rng.permutation(60 * 59)[:400]
    source, target = np.divmod(ends, 59)
    target += target >= source
    # Within a microsecond, before and after 1970, which float64 would not tell apart.
    after = rng.permutation(400) - 200
    moments = np.where(after < 0, np.datetime64("1960-01-01", "ns"), np.datetime64("2024-03-05", "ns")) + after
    lines = [f"{u},{v},{moment}\n" for u, v, moment in zip(source, target, moments, strict=True)]
    (tmp_path / "calls.csv").write_text("".join(lines))
    dataset = Catalog(tmp_path / "catalog")
    graph = ingest(tmp_path, tmp_path / "calls.csv", self_loops="add")
    links = draw_links(dataset["calls"], graph, DrawOptions(by="time", test=0.1, valid=0.1), InProcessCluster())
    order = np.argsort(moments)
    for split, chosen in (("test", order[-40:]), ("valid", order[-80:-40])):
        wanted = set(zip(source[chosen].tolist(), target[chosen].tolist(), strict=True))
        assert set(map(tuple, links.pair(split).tolist())) == wanted
    for info in dataset["calls"].artifacts():
        assert info.state == "complete"


def test_edges_of_one_date_are_refused_with_the_date(tmp_path: Path) -> None:
    (tmp_path / "calls.csv").write_text("".join(f"{k},{k + 1},1960-02-29T10:11:12.5Z\n" for k in range(50)))
    graph = ingest(tmp_path, tmp_path / "calls.csv")
    dataset = Catalog(tmp_path / "catalog")["calls"]
    with pytest.raises(InputError, match=r"50 edges .*1960-02-29T10:11:12.500000"):
        draw_links(dataset, graph, DrawOptions(by="time"), InProcessCluster())


def test_the_preview_and_the_result_say_that_times_are_dates(tmp_path: Path) -> None:
    (tmp_path / "calls.csv").write_text("a,b,t\n1,2,2024-03-05T10:11:12Z\n")
    words = ["--catalog", str(tmp_path / "c"), "ingest", "calls", str(tmp_path / "calls.csv")]
    words += ["--times", "--merge", "max", "--workers", "0", "--header", "--json"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    assert "times in t (dates with zones; stored in us)" in result.stderr
    assert json.loads(result.stdout)["time_unit"] == "us"


@pytest.mark.slow
@settings(deadline=None)
@given(st.datetimes(), st.timezones() | st.none(), st.sampled_from("T "), st.booleans())
def test_any_time_of_python_is_parsed(moment: dt.datetime, zone: Any, between: str, quoted: bool) -> None:
    offset = None if zone is None else dt.timezone(dt.timedelta(minutes=(hash(str(zone)) % 1439) - 700))
    written = moment.replace(tzinfo=offset).isoformat(between)
    text = f'"{written}"' if quoted else written
    form = find_times([text])
    assert form is not None
    found, wrong = parse_time(np.frombuffer(f"{text}\n".encode(), np.uint8), 0, len(text), form.digits, form.has_zone)
    aware = moment.replace(tzinfo=offset or dt.UTC)
    assert (found, wrong) == ((aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1), 0)


@settings(deadline=None)
@given(st.text("0123456789-:TZ+. ", max_size=32))
def test_text_is_a_time_only_if_python_reads_it(text: str) -> None:
    found, wrong = parse_time(np.frombuffer(f"{text}\n".encode(), np.uint8), 0, len(text), 6, "Z" in text)
    del found
    if not wrong:
        assert find_times([text]) is not None
        dt.datetime.fromisoformat(text.replace(" Z", "Z")[:26])


@given(st.lists(st.integers(-MOST_TICKS, MOST_TICKS), min_size=1))
def test_ticks_travel_as_floats_in_their_order(values: list[int]) -> None:
    given_ticks = np.array(values, np.int64)
    floats = floats_of_ticks(given_ticks)
    np.testing.assert_array_equal(ticks_of_floats(floats), given_ticks)
    assert np.isfinite(floats).all()
    np.testing.assert_array_equal(floats[:, None] < floats, given_ticks[:, None] < given_ticks)
