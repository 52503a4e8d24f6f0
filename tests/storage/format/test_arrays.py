"""Arrays are written in whole chunks by one writer; a missing or damaged chunk is an error that names its file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, BloscShuffle, Crc32cCodec

from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.format import chunks
from gnnloom.storage.format.array_metadata import CODECS, remove_unfinished
from gnnloom.storage.format.array_pieces import ArrayAppender, ArrayForm
from gnnloom.storage.format.array_record import ArrayRecord
from gnnloom.storage.format.arrays import (
    CHUNK_BYTES,
    ArrayReader,
    ReadCounter,
    create_array,
    write_array,
    write_rows,
)
from gnnloom.storage.format.chunks import FileBuffer
from gnnloom.storage.format.growing_array import GrowingArray
from gnnloom.storage.format.manifest import digest_arrays
from support.covering import examples, few_of
from support.scratch import small_chunks

ROWS = np.arange(1000, dtype=np.int64) * 3


def change_metadata(array: Path, **entries: Any) -> None:
    content = json.loads((array / "zarr.json").read_text())
    (array / "zarr.json").write_text(json.dumps({**content, **entries}))


def test_zarr_reads_what_was_written(tmp_path: Path) -> None:
    record = write_array(tmp_path, "a/values", ROWS, ("row",), chunk_rows=64)
    array = zarr.open_array(str(tmp_path / "a/values"), mode="r")
    np.testing.assert_array_equal(array[:], ROWS)
    assert array.metadata.to_dict()["dimension_names"] == ("row",)
    assert record.shape == (1000,)
    assert record.dtype == "int64"


def test_ranges_read_back_and_bytes_are_counted(tmp_path: Path) -> None:
    record = write_array(tmp_path, "values", ROWS, ("row",), chunk_rows=64)
    counter = ReadCounter()
    reader = ArrayReader(tmp_path, record, counter)
    np.testing.assert_array_equal(reader.read(100, 140), ROWS[100:140])
    chunks = [tmp_path / "values" / "c" / str(chunk) for chunk in (1, 2)]
    assert counter.files == 2
    assert counter.bytes == sum(chunk.stat().st_size for chunk in chunks)
    out = np.zeros(300, ROWS.dtype)
    assert reader.read(100, 400, out) is out
    np.testing.assert_array_equal(out, ROWS[100:400])
    assert counter.files == 2 + 6
    assert reader.read(5, 5).shape == (0,)
    with pytest.raises(IndexError, match="0:1001"):
        reader.read(0, 1001)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (7, 0)])
def test_empty_arrays_round_trip(tmp_path: Path, shape: tuple[int, ...]) -> None:
    record = write_array(tmp_path, "empty", np.zeros(shape, np.float32), ("row", "feature")[: len(shape)])
    reader = ArrayReader(tmp_path, record)
    assert reader.read().shape == shape
    reader.verify()


def test_all_zero_chunks_are_stored(tmp_path: Path) -> None:
    record = write_array(tmp_path, "zeros", np.zeros(300, np.int64), ("row",), chunk_rows=100)
    assert len(list((tmp_path / "zeros" / "c").iterdir())) == 3
    ArrayReader(tmp_path, record).verify()


def test_a_missing_chunk_is_an_error_not_zeros(tmp_path: Path) -> None:
    record = write_array(tmp_path, "values", ROWS, ("row",), chunk_rows=64)
    (tmp_path / "values" / "c" / "3").unlink()
    reader = ArrayReader(tmp_path, record)
    np.testing.assert_array_equal(reader.read(0, 100), ROWS[:100])
    with pytest.raises(CorruptError, match=r"values/c/3.*missing"):
        reader.read(0, 500)


def test_a_flipped_bit_names_the_file(tmp_path: Path) -> None:
    record = write_array(tmp_path, "values", ROWS, ("row",), chunk_rows=64)
    chunk = tmp_path / "values" / "c" / "5"
    damaged = bytearray(chunk.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    chunk.write_bytes(damaged)
    with pytest.raises(CorruptError, match=r"values/c/5.*damaged"):
        ArrayReader(tmp_path, record).read()


def _append(root: Path, path: str, rows: NDArray[np.int64]) -> ArrayRecord:
    appender = ArrayAppender(root, ArrayForm(path, rows.shape, rows.dtype.name, ("row",), 64))
    appender.append(rows)
    return appender.close()


def _grow(root: Path, path: str, rows: NDArray[np.int64]) -> ArrayRecord:
    # More than a chunk of the usual size, so that several are written.
    growing = GrowingArray(root, path, rows.dtype, ("row",))
    growing.append(np.resize(rows, CHUNK_BYTES // 8 + 10))
    return growing.close()


def _write_in_pieces(root: Path, path: str, rows: NDArray[np.int64]) -> ArrayRecord:
    record = create_array(root, path, rows.shape, rows.dtype, ("row",), chunk_rows=64)
    pieces = [write_rows(root, path, start, rows[start : start + 128]).pieces[0] for start in range(0, len(rows), 128)]
    return replace(record, pieces=tuple(reversed(pieces)))


@pytest.mark.parametrize("write", [write_array, _append, _grow, _write_in_pieces])
def test_a_chunk_of_another_array_is_refused_however_it_is_read(
    tmp_path: Path, write: Callable[..., ArrayRecord]
) -> None:
    options = {"dims": ("row",), "chunk_rows": 64} if write is write_array else {}
    record = write(tmp_path, "values", ROWS, **options)
    record = ArrayRecord.from_json(record.path, record.to_json())
    ArrayReader(tmp_path, record).verify()
    write(tmp_path, "others", ROWS + 1, **options)
    number = max((path.name for path in (tmp_path / "values" / "c").iterdir()), key=int)
    shutil.copy(tmp_path / "others" / "c" / number, tmp_path / "values" / "c" / number)
    reader = ArrayReader(tmp_path, record)
    for read in (
        reader.read,
        lambda: reader.read(len(reader) - 1),
        lambda: reader.read_chunk(int(number), np.empty(reader.chunk_rows, np.int64), FileBuffer()),
    ):
        with pytest.raises(CorruptError, match=rf"values/c/{number}.*manifest names.*restore it"):
            read()
    np.testing.assert_array_equal(reader.read(0, 64), ROWS[:64])


@pytest.mark.parametrize("value", [-1, 300, 2_000_000_000])
def test_a_value_out_of_bounds_is_refused_although_its_checksum_is_right(tmp_path: Path, value: int) -> None:
    ids = np.arange(300, dtype=np.int32)
    bounds = (0, 300)
    ArrayReader(tmp_path, write_array(tmp_path, "ids", ids, ("nonzero",), chunk_rows=64), bounds=bounds).verify()
    ids[299] = value
    reader = ArrayReader(tmp_path, write_array(tmp_path, "ids", ids, ("nonzero",), chunk_rows=64), bounds=bounds)
    np.testing.assert_array_equal(reader.read(0, 256), ids[:256])
    for read in (reader.read, lambda: reader.read_chunk(4, np.empty(64, np.int32), FileBuffer())):
        with pytest.raises(CorruptError, match=rf"ids/c/4.*{value}.*expected 0 to 299"):
            read()


@pytest.mark.parametrize("wrong", [[0, 2], [32, 4]])
def test_chunks_of_another_shape_are_refused(tmp_path: Path, wrong: list[int]) -> None:
    record = write_array(tmp_path, "values", ROWS.reshape(500, 2), ("row", "column"), chunk_rows=64)
    path = tmp_path / "values" / "zarr.json"
    content = json.loads(path.read_text())
    content["chunk_grid"]["configuration"]["chunk_shape"] = wrong
    path.write_text(json.dumps(content))
    with pytest.raises(CorruptError, match="expected chunks of whole rows"):
        ArrayReader(tmp_path, record)


def test_shape_and_dtype_are_checked_on_opening(tmp_path: Path) -> None:
    record = write_array(tmp_path, "values", ROWS, ("row",))
    write_array(tmp_path, "values", ROWS[:10].astype(np.int32), ("row",))
    with pytest.raises(CorruptError, match=r"int64 .*\(1000,\).* int32 .*\(10,\)"):
        ArrayReader(tmp_path, record)


def test_a_fraction_of_a_chunk_cannot_be_written(tmp_path: Path) -> None:
    create_array(tmp_path, "values", (1000,), np.int64, ("row",), chunk_rows=64)
    write_rows(tmp_path, "values", 64, ROWS[64:192])
    write_rows(tmp_path, "values", 960, ROWS[960:])
    for start, stop in ((0, 10), (10, 64), (960, 990)):
        with pytest.raises(InputError, match="not whole chunks"):
            write_rows(tmp_path, "values", start, ROWS[start:stop])


def test_rows_that_were_never_written_are_found(tmp_path: Path) -> None:
    create_array(tmp_path, "values", (128,), np.int64, ("row",), chunk_rows=64)
    record = write_rows(tmp_path, "values", 0, ROWS[:64])
    reader = ArrayReader(tmp_path, record)
    with pytest.raises(CorruptError, match="rows 64:128 were never written"):
        reader.verify()


@settings(max_examples=examples(20), deadline=None)
@given(lengths=st.lists(st.integers(0, 40), max_size=12), chunk=st.integers(1, 17))
def test_appending_gives_the_same_bytes_as_writing_whole(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], chunk: int
) -> None:
    root = tmp_path_factory.mktemp("append")
    data = np.random.default_rng(0).normal(size=(sum(lengths), 3)).astype(np.float32)
    whole = write_array(root, "whole", data, ("row", "feature"), chunk_rows=chunk)
    appender = ArrayAppender(root, ArrayForm("appended", data.shape, data.dtype.name, ("row", "feature"), chunk))
    start = 0
    for length in lengths:
        appender.append(data[start : start + length])
        start += length
    record = appender.close()
    assert record.pieces == whole.pieces
    np.testing.assert_array_equal(ArrayReader(root, record).read(), data)


@pytest.mark.parametrize("count", [5, 15])
def test_appending_another_number_of_rows_is_an_error(tmp_path: Path, count: int) -> None:
    appender = ArrayAppender(tmp_path, ArrayForm("values", (10,), "int64", ("row",), 4))
    with pytest.raises(InputError, match="array of 10"):  # noqa: PT012 - either call may find it
        appender.append(ROWS[:count])
        appender.close()


@pytest.mark.parametrize(
    ("codec", "dtype", "shape"),
    few_of(
        CODECS,
        [np.int64, np.int32, np.uint8, np.bool_, np.float32, np.float64],
        [(1000,), (128,), (70, 3)],
        together=2,
    ),
)
def test_chunks_are_the_bytes_that_zarr_writes(tmp_path: Path, codec: str, dtype: type, shape: tuple[int, ...]) -> None:
    data: np.ndarray = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    dims = ("row", "feature")[: len(shape)]
    record = write_array(tmp_path, "ours", data, dims, chunk_rows=64, codec=codec)
    by_zarr = zarr.create_array(
        str(tmp_path / "zarrs"),
        shape=shape,
        chunks=(64, *shape[1:]),
        dtype=dtype,
        compressors=_zarr_codecs(codec, np.dtype(dtype)),
        fill_value=0,
        dimension_names=dims,
        config={"write_empty_chunks": True},
    )
    by_zarr[:] = data
    ours, zarrs = _files(tmp_path / "ours"), _files(tmp_path / "zarrs")
    assert ours == zarrs
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "ours"), mode="r")[:], data)
    ArrayReader(tmp_path, record).verify()


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _zarr_codecs(codec: str, dtype: np.dtype[Any]) -> list[Any]:
    """Zarr's own objects for a choice of ``--codec``."""
    if codec == "none":
        return [Crc32cCodec()]
    if codec == "fast":
        return [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=dtype.itemsize), Crc32cCodec()]
    shuffle = BloscShuffle.bitshuffle if dtype.kind == "f" else BloscShuffle.shuffle
    return [BloscCodec(cname="zstd", clevel=3, shuffle=shuffle, typesize=dtype.itemsize), Crc32cCodec()]


def test_a_chunk_of_many_blocks_has_the_same_bytes_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blosc: Any = import_module("numcodecs.blosc")
    # As in a process that has not imported zarr, which turns Blosc's threads off.
    monkeypatch.setattr(blosc, "use_threads", None)
    # Blocks of unequal difficulty, which threads would finish in another order each time.
    rows = np.random.default_rng(1).zipf(2.0, 1 << 19)
    before = blosc.set_nthreads(4)
    try:
        for number in range(20):
            write_array(tmp_path, f"{number}", rows, ("row",), codec="small")
    finally:
        blosc.set_nthreads(before)
    assert len({(tmp_path / f"{number}" / "c" / "0").read_bytes() for number in range(20)}) == 1


def test_digests_do_not_depend_on_the_codec(tmp_path: Path) -> None:
    records = [write_array(tmp_path, "values", ROWS, ("row",), codec=codec) for codec in CODECS]
    assert len({record.pieces[0].digest for record in records}) == 1
    assert len({digest_arrays([record]) for record in records}) == 1
    with pytest.raises(InputError, match="none, fast, small"):
        write_array(tmp_path, "values", ROWS, ("row",), codec="tiny")


def test_codecs_of_others_are_not_written(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "foreign"), shape=(10,), chunks=(5,), dtype=np.int64)
    with pytest.raises(InputError, match="codecs that gnnloom does not write"):
        write_rows(tmp_path, "foreign", 0, ROWS[:10])


@pytest.mark.parametrize("cuts", [[10], [3, 7], [64, 1, 63], [300], [130, 170]])
def test_a_growing_array_has_the_bytes_of_one_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: list[int]
) -> None:
    small_chunks(monkeypatch, 64 * 8)
    growing = GrowingArray(tmp_path, "grown", np.int64, ("row",))
    for stop, count in zip(np.cumsum(cuts), cuts, strict=True):
        growing.append(ROWS[stop - count : stop])
    record = growing.close()
    whole = write_array(tmp_path, "whole", ROWS[: sum(cuts)], ("row",))
    assert record.pieces == whole.pieces
    assert _files(tmp_path / "grown") == _files(tmp_path / "whole")


def test_sizes_that_a_damaged_file_declares_take_no_memory(tmp_path: Path) -> None:
    record = write_array(tmp_path, "x", np.zeros(1000, np.int64), ("row",), chunk_rows=100)
    metadata = tmp_path / "x" / "zarr.json"
    text = metadata.read_text()
    # An array of 80 TB.
    metadata.write_text(text.replace("1000\n", "10000000000000\n"))
    with pytest.raises(CorruptError, match="the chunk is missing"):
        ArrayReader(tmp_path, replace(record, shape=(10**13,))).read()
    metadata.write_text(text)
    # A chunk that says that it becomes 2 GB, with a checksum that is right.
    chunk = tmp_path / "x" / "c" / "3"
    stored = bytearray(chunk.read_bytes()[:-4])
    stored[4:8] = (2**31 - 1).to_bytes(4, "little")
    checksum = google_crc32c.value(bytes(stored)).to_bytes(4, "little")
    chunk.write_bytes(bytes(stored) + checksum)
    (piece,) = record.pieces
    checksums = piece.checksums[:24] + checksum.hex() + piece.checksums[32:]
    with pytest.raises(CorruptError, match=r"c/3:.*2147483647.*800"):
        ArrayReader(tmp_path, replace(record, pieces=(piece._replace(checksums=checksums),))).read()


def test_a_chunk_that_expands_a_thousand_times_is_refused_unread(tmp_path: Path) -> None:
    record = write_array(tmp_path, "a", np.zeros((200, 4), np.float32), ("row", "column"))
    rows = 16 << 20
    encoded = import_module("numcodecs.blosc").Blosc("zstd", 5).encode(np.zeros((rows, 4), np.float32))
    checksum = google_crc32c.value(encoded).to_bytes(4, "little")
    (tmp_path / "a/c/0/0").write_bytes(encoded + checksum)
    change_metadata(tmp_path / "a", chunk_grid={"name": "regular", "configuration": {"chunk_shape": [rows, 4]}})
    assert 1000 * len(encoded) < rows * 16
    pieces = tuple(piece._replace(checksums=checksum.hex()) for piece in record.pieces)
    with pytest.raises(CorruptError, match=r"a: .*\(chunks of 268,435,456 bytes"):
        ArrayReader(tmp_path, replace(record, pieces=pieces))
    with pytest.raises(InputError, match="chunks of more than"):
        write_array(tmp_path, "b", np.zeros((1, 20 << 20), np.float32), ("row", "column"))


def test_a_file_larger_than_a_chunk_is_refused_unread(tmp_path: Path) -> None:
    record = write_array(tmp_path, "a", ROWS, ("row",), chunk_rows=64)
    with (tmp_path / "a/c/0").open("r+b") as chunk:
        chunk.truncate(1 << 40)
    with pytest.raises(CorruptError, match=r"c/0: damaged chunk .*not a file of at most"):
        ArrayReader(tmp_path, record).read(0, 64)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": [10**30]},
        {"shape": [float("inf")]},
        {"shape": [float("nan")]},
        {"chunk_grid": {"configuration": {"chunk_shape": [float("inf")]}}},
        {"chunk_grid": {"configuration": {"chunk_shape": [10**12]}}},
        {"codecs": [{"name": "numcodecs.pickle"}, {"name": "crc32c"}]},
        {"codecs": [{"name": "sharding_indexed"}]},
        {"data_type": {"name": "numcodecs.pickle"}},
        {"attributes": {"a": "x" * (2 << 20)}},
    ],
)
def test_metadata_of_a_stranger_are_one_error(tmp_path: Path, wrong: dict[str, Any]) -> None:
    record = write_array(tmp_path, "a", ROWS, ("row",), chunk_rows=64)
    change_metadata(tmp_path / "a", **wrong)
    with pytest.raises(CorruptError, match=str(tmp_path / "a")):
        ArrayReader(tmp_path, record)


def test_a_pipe_in_the_place_of_metadata_is_not_waited_for(tmp_path: Path) -> None:
    record = write_array(tmp_path, "a", ROWS, ("row",), chunk_rows=64)
    (tmp_path / "a/zarr.json").unlink()
    os.mkfifo(tmp_path / "a/zarr.json")
    with pytest.raises(CorruptError, match=r"zarr\.json: expected a regular file"):
        ArrayReader(tmp_path, record)


def test_a_record_of_more_rows_than_int64_counts_is_refused() -> None:
    content = ArrayRecord("a", (4,), "int64", ("row",), ()).to_json()
    with pytest.raises(ValueError, match="not the shape of an array"):
        ArrayRecord.from_json("a", {**content, "shape": [10**30]})


def grown(root: Path, rows: NDArray[Any], *, dies: bool) -> ArrayRecord | None:
    array = GrowingArray(root, "column", rows.dtype, ("edge",))
    array.append(rows[: len(rows) // 2] if dies else rows)
    return None if dies else array.close()


def written(root: Path, rows: NDArray[Any], *, dies: bool) -> ArrayRecord | None:
    if dies:
        create_array(root, "column", rows.shape, rows.dtype, ("edge",))
        return None
    return write_array(root, "column", rows, ("edge",))


def appended(root: Path, rows: NDArray[Any], *, dies: bool) -> ArrayRecord | None:
    form = ArrayForm("column", rows.shape, rows.dtype.name, ("edge",))
    if dies:
        form.opened(root, is_alone=True)
        return None
    appender = ArrayAppender(root, form)
    appender.append(rows)
    return appender.close()


@pytest.mark.parametrize("attempt", [written, grown, appended])
def test_an_attempt_that_dies_leaves_what_another_one_has_recorded(
    tmp_path: Path, attempt: Callable[..., ArrayRecord | None]
) -> None:
    """The worker of a killed command may begin a task that the next command has finished, and then die."""
    rows = np.arange(3 * CHUNK_BYTES // 8 + 5)
    record = attempt(tmp_path, rows, dies=False)
    attempt(tmp_path, rows, dies=True)
    assert record is not None
    np.testing.assert_array_equal(ArrayReader(tmp_path, record).read(), rows)
    # And what the dead one left does no harm to the next.
    assert attempt(tmp_path, rows, dies=False) == record
    np.testing.assert_array_equal(ArrayReader(tmp_path, record).read(), rows)


def test_temporary_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    record = write_array(tmp_path, "feature", np.ones((10, 2)), ("vertex", "feature"))
    left = [tmp_path / "feature" / "c" / "0" / ".0.left", tmp_path / "feature" / ".zarr.json.left"]
    for path in left:
        path.touch()
    assert write_array(tmp_path, "feature", np.ones((10, 2)), ("vertex", "feature")) == record
    assert not any(path.exists() for path in left)


def test_an_array_of_another_shape_is_replaced_whole(tmp_path: Path) -> None:
    write_array(tmp_path, "column", np.arange(3 * CHUNK_BYTES // 8), ("edge",))
    write_array(tmp_path, "column", np.arange(10), ("edge",))
    assert [path.name for path in (tmp_path / "column" / "c").iterdir()] == ["0"]


def test_a_chunk_whose_temporary_file_another_attempt_removes_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def begin_another(name: str, *_: Path) -> None:
        begun.append(name)
        if begun == ["chunk.write"]:
            remove_unfinished(tmp_path / "column")

    monkeypatch.setattr(chunks, "fault_point", begin_another)
    record = write_array(tmp_path, "column", ROWS, ("edge",))
    assert begun == ["chunk.write", "chunk.write", "chunk.written"]
    np.testing.assert_array_equal(ArrayReader(tmp_path, record).read(), ROWS)
