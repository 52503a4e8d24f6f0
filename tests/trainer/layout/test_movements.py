"""Matrices keep their entries on the way between layouts, and on disk. Several ranks: see the operators' tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gnnloom.storage.disk.files import write_json
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.realignment import Realigner
from gnnloom.trainer.layout.redistribute import VertexOrder
from gnnloom.trainer.layout.vertex_arrays import VertexArrayPiece, announce, announced, collect, write_vertex_arrays
from gnnloom.trainer.place.place import Place
from support.gradients import backward
from support.lone import LoneCommunicator

NUM_VERTICES = 11


class Orders:
    """Two orders of the vertices: as they are, and shuffled."""

    num_vertices = NUM_VERTICES

    def __init__(self) -> None:
        self.shuffled = np.random.default_rng(0).permutation(NUM_VERTICES)

    def positions(self, order: str, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = np.argsort(self.shuffled)[vertex] if order == "columns" else vertex
        return found


def layouts(orders: Orders) -> tuple[Layout, Layout]:
    grid = ProcessGrid(LoneCommunicator(), {"row": 1}, Place())
    plain = np.arange(NUM_VERTICES)
    return Layout(grid, plain, ("row",)), Layout(grid, orders.shuffled, ("row",), order="columns")


def test_realigned_rows_follow_the_other_order_and_gradients_go_back() -> None:
    orders = Orders()
    source, target = layouts(orders)
    features = torch.randn(NUM_VERTICES, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    realigner = Realigner(orders)
    found = realigner.align(features, source, target, 3)
    assert torch.equal(found.detach(), features.detach()[orders.shuffled])
    assert realigner.align(features, source, source, 3) is features
    gradient = torch.randn(NUM_VERTICES, 3, generator=torch.Generator().manual_seed(1))
    backward(found, gradient)
    assert features.grad is not None
    assert torch.equal(features.grad[orders.shuffled], gradient)


def test_chunks_are_in_the_order_of_the_vertices() -> None:
    _, layout = layouts(Orders())
    rows = torch.from_numpy(layout.vertex).double().view(-1, 1) * torch.ones(2, dtype=torch.float64)
    chunks = list(VertexOrder(layout, NUM_VERTICES, Kind.PREDICTION).chunks(rows, 4))
    assert [first for first, _ in chunks] == [0, 4, 8]
    assert torch.equal(torch.cat([chunk for _, chunk in chunks])[:, 0], torch.arange(NUM_VERTICES).double())


def test_arrays_are_written_in_the_order_of_the_vertices(tmp_path: Path) -> None:
    _, layout = layouts(Orders())
    values = torch.from_numpy(layout.vertex).to(torch.int32)
    array = VertexArrayPiece("label", values, layout, ("vertex",))
    # What another process left behind belongs to no rank.
    write_json(tmp_path / ".work" / "00001.json", {"label": {}})
    (record,) = write_vertex_arrays(LoneCommunicator(), tmp_path, [array], NUM_VERTICES, Kind.PREDICTION)
    assert (record.shape, record.dtype) == ((NUM_VERTICES,), "int32")
    assert not (tmp_path / ".work").exists()
    assert np.array_equal(ArrayReader(tmp_path, record).read(), np.arange(NUM_VERTICES))


class _LosesFiles(LoneCommunicator):
    """Stands for a file system on which the machine of rank 0 does not see the files of another one."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def barrier(self) -> None:
        for path in (self.folder / ".work").glob("*.json"):
            path.unlink()


def test_a_missing_piece_is_named(tmp_path: Path) -> None:
    _, layout = layouts(Orders())
    array = VertexArrayPiece("label", torch.from_numpy(layout.vertex), layout, ("vertex",))
    with pytest.raises(CorruptError, match=r"00000\.json:"):
        write_vertex_arrays(_LosesFiles(tmp_path), tmp_path, [array], NUM_VERTICES, Kind.PREDICTION)


def test_rank_0_may_collect_as_soon_as_the_last_rank_has_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(tmp_path, 0, [])

    def collect_at_once(point: str, path: Path | None = None) -> bool:
        if point == "file.renamed" and path == announced(tmp_path, 1):
            assert collect(tmp_path, 2) == []
        return False

    monkeypatch.setattr("gnnloom.storage.disk.files.fault_point", collect_at_once)
    announce(tmp_path, 1, [])
    assert not announced(tmp_path, 1).parent.exists()
