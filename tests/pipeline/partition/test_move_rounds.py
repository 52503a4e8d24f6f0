"""Rounds of tasks refine as well as one vertex after the other, and to the same bytes for any number of workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel import move_rounds
from gnnloom.pipeline.partition.multilevel import refine as refine_module
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.heavy_first import assign_heavy_first
from gnnloom.pipeline.partition.multilevel.incidence import IncidenceWriter
from gnnloom.pipeline.partition.multilevel.move_rounds import Pass, move_in_rounds
from gnnloom.pipeline.partition.multilevel.net_masks import create_masks, fill_phase
from gnnloom.pipeline.partition.multilevel.part_files import rows_sent
from gnnloom.pipeline.partition.multilevel.pieces import run_pieces, store_vector
from gnnloom.pipeline.partition.multilevel.refine import Refinement, refine
from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_hypergraph
from gnnloom.pipeline.partition.multilevel.transpose_incidence import transpose_incidence
from gnnloom.pipeline.partition.multilevel.vertex_moves import accept_classes
from gnnloom.pipeline.partition.partitioner import LevelSteps
from gnnloom.pipeline.tasks.cluster import Cluster, InProcessCluster, ThreadedCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format.memory_map import create_part_vector
from support.graphs import random_adjacency, store_graph
from support.late import LateCluster
from support.partitions import transpose_of
from support.twice import TwiceCluster

HERE = InProcessCluster()
PARTS, MEMORY = 16, 1 << 26
Item = TypeVar("Item")
Result = TypeVar("Result")


def stored(folder: Path, adjacency: Any, *, symmetric: bool = True, directions: str = "forward") -> DiskHypergraph:
    dataset = Catalog(folder).create("g")
    graph = store_graph(dataset, adjacency, symmetric=symmetric)
    return store_hypergraph(folder / "disk", graph, transpose_of(dataset, graph), HERE, directions=directions)


def skewed(n: int, nnz: int) -> Any:
    """A directed graph without loops, in which low ids have the most edges."""
    adjacency = random_adjacency(n, nnz, 0, symmetric=False, loops=False).tolil()
    adjacency[: n // 50] = random_adjacency(n, 10 * nnz, 1, symmetric=False, loops=False)[: n // 50]
    return adjacency.tocsr()


def pins_of(hypergraph: DiskHypergraph) -> NDArray[np.bool_]:
    """(num_nets, num_vertices) whether each vertex is a pin of each net."""
    dense = np.zeros((hypergraph.num_nets, hypergraph.num_vertices), dtype=np.bool_)
    for block in hypergraph.nets.blocks():
        dense[block.first_row + np.repeat(np.arange(len(block.offset) - 1), np.diff(block.offset)), block.ids] = True
    return dense


def start(hypergraph: DiskHypergraph, path: Path, parts: int = PARTS) -> NDArray[np.int32]:
    part = create_part_vector(path, hypergraph.num_vertices)
    assign_heavy_first(np.array(hypergraph.vertex_weight), parts, 0, part)
    return part


def refined(
    hypergraph: DiskHypergraph, folder: Path, cluster: Cluster = HERE, parts: int = PARTS, passes: int = 8
) -> NDArray[np.int32]:
    part = start(hypergraph, folder / "part.npy", parts)
    refinement = Refinement(parts, 0.03, 0, passes, MEMORY if parts < 64 else 1, 1.5)
    refine(hypergraph, part, folder / "part.npy", refinement, folder / "masks", cluster)
    return part


def crossed(folder: Path, pairs: int) -> DiskHypergraph:
    """A ring of nets between two halves, whose vertices each have an anchor in their half.

    Vertices 0 up to ``pairs`` and their anchors are the first half.  Each vertex of the ring gains by a move to the
    other half, but if all move, the nets of the ring are cut as before, and those of the anchors as well.
    """
    one, other = np.arange(pairs), 2 * pairs + np.arange(pairs)
    nets = [(one, other), (one, np.roll(other, -1)), (one, one + pairs), (other, other + pairs)]
    with IncidenceWriter(folder / "nets", np.dtype(np.int32)) as writer:
        pins = np.concatenate([np.stack(net, axis=1) for net in nets])
        writer.append(2 * np.arange(len(pins) + 1), pins.reshape(-1))
        rows = writer.close()
    weight = store_vector(folder / "weight.npy", np.ones(4 * pairs, dtype=np.int64))
    columns = transpose_incidence(rows, 4 * pairs, folder / "vertices", MEMORY, HERE)
    return DiskHypergraph(rows, columns, weight, None, 4 * pairs, 1)


@pytest.mark.parametrize("passes", [1, 4])
def test_a_last_round_that_sends_more_rows_is_undone(
    tmp_path: Path, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hypergraph = replace(crossed(tmp_path, 8), steps=LevelSteps(few_pins=0, rounds=1))
    path = tmp_path / "part.npy"
    part = create_part_vector(path, 32)
    part[:] = np.arange(32) // 16
    sent = [rows_sent(hypergraph, path, 2, HERE)]

    def measured(*arguments: Any) -> int:
        moved = move_in_rounds(*arguments)
        sent.append(rows_sent(hypergraph, path, 2, HERE))
        return moved

    monkeypatch.setattr(refine_module, "move_in_rounds", measured)
    refine(hypergraph, part, path, Refinement(2, 0.5, 0, passes, MEMORY, 0.0), tmp_path / "masks", HERE)
    assert sent[0] == 16
    assert sent[1] > sent[0]
    assert rows_sent(hypergraph, path, 2, HERE) == min(sent)
    assert not list((tmp_path / "masks").glob("best*"))


@pytest.mark.slow
@pytest.mark.parametrize("is_skewed", [pytest.param(False, marks=pytest.mark.long), True])
def test_rounds_send_about_as_few_rows_as_one_vertex_after_the_other(tmp_path: Path, is_skewed: bool) -> None:
    adjacency = skewed(2000, 16_000) if is_skewed else random_adjacency(4000, 30_000, 2, symmetric=True)
    hypergraph = stored(tmp_path, adjacency, symmetric=not is_skewed)
    path = tmp_path / "part.npy"
    start(hypergraph, path)
    before = rows_sent(hypergraph, path, PARTS, HERE)
    refined(hypergraph, tmp_path)
    one_by_one = rows_sent(hypergraph, path, PARTS, HERE)
    part = refined(replace(hypergraph, steps=LevelSteps(few_pins=0)), tmp_path)
    assert rows_sent(hypergraph, path, PARTS, HERE) <= 1.02 * one_by_one
    assert one_by_one < 0.9 * before
    load = np.bincount(part, weights=hypergraph.vertex_weight, minlength=PARTS)
    assert load.max() <= refine_module._limit(hypergraph, Refinement(PARTS, 0.03, 0, 16, MEMORY, 0.0))


@pytest.mark.slow
@pytest.mark.parametrize("parts", [pytest.param(PARTS, marks=pytest.mark.long), 150])
def test_tasks_of_any_size_make_the_same_moves(tmp_path: Path, parts: int) -> None:
    """150 parts are refined in three windows."""
    hypergraph = stored(tmp_path, skewed(800, 5000), symmetric=False, directions="both")
    hypergraph = replace(hypergraph, steps=LevelSteps(few_pins=0, rounds=4))
    phases = (move_rounds._propose, move_rounds._spread, move_rounds._change_masks)
    # After the next round, each of which has three phases.
    late = LateCluster(lambda function: function in phases, slice(-6, -3), after=True)
    found = {refined(hypergraph, tmp_path, HERE, parts, 2).tobytes()}
    # Several lanes in a file, and several pages in a lane.
    hypergraph = replace(hypergraph, scratch=Scratch(files=2, page_bytes=64))
    clusters = (TwiceCluster(), ThreadedCluster(3, MEMORY), late)
    found |= {refined(hypergraph, tmp_path, cluster, parts, 2).tobytes() for cluster in clusters}
    assert len(found) == 1
    assert late.late > 0
    assert not list((tmp_path / "masks").glob("*rounds*"))


@pytest.mark.parametrize("heat", [0.0, 2.0])
def test_after_a_pass_the_loads_are_exact_and_masks_miss_no_pin(tmp_path: Path, heat: float) -> None:
    hypergraph = replace(stored(tmp_path, skewed(900, 6000), symmetric=False), steps=LevelSteps(rounds=2))
    part = start(hypergraph, tmp_path / "part.npy")
    position, load = np.arange(PARTS), np.bincount(part, weights=hypergraph.vertex_weight).astype(np.int64)
    np.save(tmp_path / "position.npy", position)
    masks = [create_masks(tmp_path / f"{name}.npy", hypergraph.num_nets, 1) for name in ("kept", "exact")]
    files = hypergraph, tmp_path / "part.npy", tmp_path / "position.npy", 0
    run_pieces(fill_phase(*files, tmp_path / "kept.npy", 1), HERE)
    work = Pass(
        hypergraph, tmp_path / "part.npy", tmp_path / "kept.npy", 0, int(load.max()) + 50, heat,
        np.uint64(7), tmp_path / "rounds",
    )  # fmt: skip
    before, filled = part.copy(), np.array(masks[0])
    moved = move_in_rounds(work, position, load, HERE)
    assert moved == (part != before).sum() > 0
    np.testing.assert_array_equal(load, np.bincount(part, weights=hypergraph.vertex_weight))
    assert load.max() <= work.limit
    run_pieces(fill_phase(*files, tmp_path / "exact.npy", 1), HERE)
    kept, exact = map_array(tmp_path / "kept.npy"), np.asarray(masks[1])
    assert not (exact & ~kept).any()
    # A pin that was alone in its part is known to have left, unless another one came in the same pass.
    net, vertex = np.nonzero(pins_of(hypergraph))
    source = np.uint64(1) << before[vertex].astype(np.uint64)
    alone = (part != before)[vertex] & (filled[net, 1, 0] & source == 0) & (exact[net, 0, 0] & source == 0)
    assert alone.any()
    assert not (kept[net, 0, 0] & source)[alone].any()


def test_classes_that_would_fill_a_part_too_far_are_refused_until_others_have_left() -> None:
    # Class (bucket * P + source) * P + target with three parts; 0 -> 1, 1 -> 2, and 2 -> 0 for the balance only.
    move_class = np.array([1, 1 * 3 + 2, (4 * 3 + 2) * 3 + 0])
    load = np.array([10, 10, 6])
    accepted = accept_classes(move_class, np.array([4, 4, 4]), load, 11, 4)
    assert accepted.tolist() == [True, True, False]
    assert load.tolist() == [6, 10, 10]
    load = np.array([2, 2, 14])
    assert accept_classes(move_class[2:], np.array([4]), load, 11, 4).tolist() == [True]
