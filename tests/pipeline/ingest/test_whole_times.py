"""Times that float64 cannot hold are whole numbers, exact on every way in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gnnloom
from gnnloom.storage.errors import GnnloomError
from support.covering import examples, few_of

#: A time as the LDBC's generator writes them; odd numbers near it have no float64.
FIRST = 20100313073721719
#: The largest time, and more than it.
MOST, TOO_LARGE = 9_214_364_837_600_034_815, 9_214_364_837_600_034_816
EDGE = ("v", "sent", "v")


def _table(seed: int = 0, count: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    times = FIRST + 2 * rng.integers(-(1 << 40), 1 << 40, count)
    return pd.DataFrame(
        {"a": rng.integers(0, 9, count), "b": rng.integers(0, 9, count), "t": times, "w": rng.integers(1, 9, count)}
    )


def _ingest(folder: Path, table: Any, columns: str, name: str = "g", **options: Any) -> Any:
    how: dict[str, Any] = {"merge": "keep", "workers": 0, "catalog": folder / "catalog", **options}
    return gnnloom.ingest(name, None, relations={EDGE: (table, columns.split(","))}, **how)


def _rows(dataset: Any) -> list[tuple[int, ...]]:
    """Source, target and time of each edge, ascending, as they are exported."""
    found = gnnloom.export(dataset, "edges", relation="sent")
    assert isinstance(found, pd.DataFrame)
    assert found["time"].dtype == np.int64
    return sorted(zip(*(found[name].tolist() for name in ("source", "target", "time")), strict=True))


def _wanted(table: pd.DataFrame) -> list[tuple[int, ...]]:
    return sorted(zip(*(table[name].tolist() for name in "abt"), strict=True))


@pytest.mark.parametrize(
    ("columns", "kind"),
    few_of(
        ["a,b,t as time", "a,b,t as time,w as weight"],
        ["csv", "parquet", "text in parquet", "frame", "two files"],
        together=1,
    ),
)
def test_every_digit_is_kept_on_every_way_in(tmp_path: Path, kind: str, columns: str) -> None:
    pytest.importorskip("torch_geometric.nn")
    table, path = _table(), tmp_path / ("e.parquet" if "parquet" in kind else "e.csv")
    source: Any = table if kind == "frame" else str(path)
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "two files":
        # The times of the first file alone have a float64.
        table.loc[:9, "t"] = range(10)
        table[:10].to_csv(path, index=False)
        table[10:].to_csv(tmp_path / "e2.csv", index=False)
        source = str(tmp_path / "e*.csv")
    elif "parquet" in kind:
        table.astype({"t": str} if "text" in kind else {}).to_parquet(path)
    dataset = _ingest(tmp_path, source, columns)
    assert _rows(dataset) == _wanted(table)
    assert sorted(dataset.to_pyg()[EDGE].time.tolist()) == sorted(table.t.tolist())
    everything: Any = {"fanout": (-1,), "batch_size": 9, "vertices": np.arange(9), "of_type": "v"}
    (batch,) = gnnloom.loader(dataset, **everything, features="none", labels=False)
    assert sorted(batch.time.tolist()) == sorted(table.t.tolist())


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_is_exported_is_read_back(tmp_path: Path, suffix: str) -> None:
    table = _table(1)
    dataset = _ingest(tmp_path, table, "a,b,t as time,w as weight")
    file = gnnloom.export(dataset, "edges", relation="sent", out=tmp_path / f"out.{suffix}")
    again = _ingest(tmp_path, str(file), "source,target,time as time", "again")
    assert _rows(again) == _wanted(table)


@pytest.mark.parametrize("kind", ["text", "npz"])
def test_graphs_without_types_have_them_too(tmp_path: Path, kind: str) -> None:
    table = _table(2).drop_duplicates(["a", "b"], keep=False)
    if kind == "npz":
        np.savez(tmp_path / "e.npz", edge_index=table[["a", "b"]].to_numpy().T, time=table.t.to_numpy())
    else:
        table[["a", "b", "t"]].to_csv(tmp_path / "e.text", sep=" ", header=False, index=False)
    how: dict[str, Any] = {"merge": "max", "workers": 0, "catalog": tmp_path / "catalog", "self_loops": "remove"}
    found = gnnloom.ingest("g", tmp_path / f"e.{kind}", times=True, **how).graph()
    times = [found.times(number) for number in range(found.num_blocks)]
    stored = np.concatenate([each.read() for each in times if each is not None])
    wanted = table[table.a != table.b].sort_values(["b", "a"])
    assert stored.tolist() == wanted.t.tolist()
    assert found.time_unit == "1"


@settings(max_examples=examples(12), deadline=None)
@given(
    times=st.lists(st.none() | st.integers(-MOST, MOST), min_size=1, max_size=30),
    fill=st.integers(-MOST, MOST),
    suffix=st.sampled_from(["csv", "parquet"]),
)
def test_random_times(
    tmp_path_factory: pytest.TempPathFactory, times: list[int | None], fill: int, suffix: str
) -> None:
    folder = tmp_path_factory.mktemp("times")
    # The first time decides.
    table = pd.DataFrame({"a": range(len(times) + 1), "b": 0, "t": pd.array([FIRST, *times], dtype="Int64")})
    table.to_csv(folder / "e.csv", index=False) if suffix == "csv" else table.to_parquet(folder / "e.parquet")
    dataset = _ingest(folder, str(folder / f"e.{suffix}"), f"a,b,t as time else {fill}")
    assert _rows(dataset) == _wanted(table.fillna({"t": fill}))


@pytest.mark.parametrize(
    ("last", "columns", "message"),
    [
        ("1.5", "a,b,t as time", r"e\.csv, line 4: .*whole number.*1\.5"),
        ("1.5", "a,b,t as time,w as weight", r"e\.csv, line 4: column t: .*whole number.*1\.5"),
        (str(TOO_LARGE), "a,b,t as time", r"e\.csv, line 4: "),
        (f"-{TOO_LARGE}", "a,b,t as time,w as weight", r"e\.csv, line 4: "),
        ("2024-01-02", "a,b,t as time", r"e\.csv, line 4: "),
        ("", "a,b,t as time,w as weight", r"e\.csv, line 4: column t: no value"),
        ("", "a,b,t as time else 1.5", r"e\.csv, column t: else '1\.5'.*whole number"),
        ("", f"a,b,t as time else {TOO_LARGE}", r"e\.csv, column t: else "),
    ],
)
def test_what_is_not_such_a_number_is_refused(tmp_path: Path, last: str, columns: str, message: str) -> None:
    (tmp_path / "e.csv").write_text(f"a,b,t,w\n1,2,{FIRST},1\n2,3,{-MOST},1\n3,4,{last},1\n")
    with pytest.raises(GnnloomError, match=message):
        _ingest(tmp_path, str(tmp_path / "e.csv"), columns)


@pytest.mark.parametrize("values", [[FIRST, TOO_LARGE], [FIRST, -TOO_LARGE], [FIRST, (1 << 64) - 1]])
def test_numbers_of_binary_files_are_checked(tmp_path: Path, values: list[int]) -> None:
    pd.DataFrame({"a": [1, 2], "b": [2, 3], "t": values}).to_parquet(tmp_path / "e.parquet")
    with pytest.raises(GnnloomError, match=r"e\.parquet, column t, row 1: .*whole number"):
        _ingest(tmp_path, str(tmp_path / "e.parquet"), "a,b,t as time")


@pytest.mark.parametrize("columns", ["a,b,t as time", "a,b,t as time,w as weight"])
def test_a_later_number_that_float64_lacks_is_an_error_with_its_line(tmp_path: Path, columns: str) -> None:
    lines = [f"{number},{number + 1},{number},1\n" for number in range(9000)]
    (tmp_path / "e.csv").write_text("a,b,t,w\n" + "".join(lines) + f"1,2,{FIRST},1\n")
    with pytest.raises(GnnloomError, match=r"e\.csv, line 9,002: .*float64"):
        _ingest(tmp_path, str(tmp_path / "e.csv"), columns)


def test_dates_and_numbers_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "e1.csv").write_text(f"a,b,t\n1,2,{FIRST}\n")
    (tmp_path / "e2.csv").write_text("a,b,t\n1,2,2024-01-02\n")
    with pytest.raises(GnnloomError, match=r"e1\.csv: expected dates"):
        _ingest(tmp_path, str(tmp_path / "e*.csv"), "a,b,t as time")
