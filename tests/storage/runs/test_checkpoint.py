"""A checkpoint reads back as it was written, and only the last two are kept."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import CorruptError, FormatError, NotFoundError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.listing import listed_nodes, nodes_below, write_list
from gnnloom.storage.runs.checkpoint import Checkpoint, checkpoint_epochs, read_checkpoint, write_checkpoint


def write(folder: Path, epoch: int) -> Path:
    arrays: dict[str, np.ndarray] = {
        "layers/0/weight": np.full((3, 2), epoch, np.float64),
        "bias": np.arange(4, dtype=np.float32),
    }
    return write_checkpoint(folder, Checkpoint(epoch, arrays, {"step": epoch}))


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    for epoch in (1, 5, 10):
        write(tmp_path, epoch)
    assert checkpoint_epochs(tmp_path) == [5, 10]
    last, before = read_checkpoint(tmp_path), read_checkpoint(tmp_path, 5)
    assert (last.epoch, last.facts) == (10, {"step": 10})
    assert before.arrays["layers/0/weight"].tolist() == [[5.0, 5.0]] * 3
    assert last.arrays["bias"].dtype == np.float32


def test_lists_of_a_run_say_what_is_in_its_checkpoints(tmp_path: Path) -> None:
    run, folder = tmp_path / "run", tmp_path / "run" / "checkpoint"
    run.mkdir()
    write_list(run)
    for epoch in (1, 2, 3):
        write(folder, epoch)
        write(folder / "best", epoch)
        # The list of a run follows its last checkpoints, and not the best ones.
        assert listed_nodes(folder / "best") == nodes_below(folder / "best")
        assert listed_nodes(folder) == nodes_below(folder)
        write(folder, epoch)
        assert listed_nodes(run) == nodes_below(run)
    # Groups and arrays of the checkpoints that are kept, at every level.
    names = ("layers", "layers/0", "layers/0/weight", "bias")
    held = [f"checkpoint/{where}" for where in ("00000002", "00000003", "best/00000002", "best/00000003")]
    expected = {"checkpoint", "checkpoint/best", *held, *(f"{each}/{name}" for each in held for name in names)}
    assert set(nodes_below(run)) == expected


def test_a_folder_that_is_removed_meanwhile_has_no_checkpoints(tmp_path: Path) -> None:
    folder, stop = tmp_path / "checkpoint", threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            folder.mkdir()
            folder.rmdir()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        assert all(checkpoint_epochs(folder) == [] for _ in range(10_000))
    finally:
        stop.set()
        thread.join()


def test_a_missing_checkpoint_is_refused_with_the_existing_ones(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no checkpoint yet; `gnnloom train`"):
        read_checkpoint(tmp_path)
    write(tmp_path, 2)
    with pytest.raises(NotFoundError, match=r"epoch 3;.* 2$"):
        read_checkpoint(tmp_path, 3)


def test_an_unfinished_checkpoint_is_not_found(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (write(tmp_path, 2) / "checkpoint.json").unlink()
    assert read_checkpoint(tmp_path).epoch == 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"format_version": 99}, FormatError, "format 99 is newer"),
        ({"facts": None}, CorruptError, "facts"),
        ({"arrays": {"bias": 3}}, CorruptError, "not the index of a checkpoint"),
    ],
)
def test_a_wrong_index_is_refused(
    tmp_path: Path, change: dict[str, object], error: type[Exception], message: str
) -> None:
    index = write(tmp_path, 1) / "checkpoint.json"
    write_json(index, read_json(index) | change)
    with pytest.raises(error, match=message):
        read_checkpoint(tmp_path)


def test_a_damaged_array_is_refused(tmp_path: Path) -> None:
    chunk = write(tmp_path, 1) / "bias" / "c" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"#")
    with pytest.raises(CorruptError, match="bias/c/0: damaged chunk"):
        read_checkpoint(tmp_path)


def test_shares_together_compare_every_byte_once(tmp_path: Path) -> None:
    folder = write(tmp_path, 1)
    whole = ReadCounter()
    arrays = read_checkpoint(tmp_path, counter=whole).arrays
    counters = [ReadCounter() for _ in range(3)]
    for share, counter in enumerate(counters):
        read_checkpoint(tmp_path, share=(share, 3), counter=counter)
    assert sum(counter.bytes for counter in counters) == whole.bytes // 2
    assert max(counter.bytes for counter in counters) < whole.bytes // 2
    # Any damage is found by the one share that has it.
    for name in arrays:
        chunk = folder / name / "c" / "0"
        chunk = chunk if chunk.is_file() else chunk / "0"
        before = chunk.read_bytes()
        chunk.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        found = 0
        for share in range(3):
            try:
                read_checkpoint(tmp_path, share=(share, 3))
            except CorruptError:
                found += 1
        assert found == 1, name
        chunk.write_bytes(before)
