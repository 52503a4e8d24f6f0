"""Calls the kernels that only large inputs, or less usual ones, reach; a part of ``gnnloom doctor --warm``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gnnloom.pipeline.tasks.cluster import Cluster
    from gnnloom.storage import Dataset, Graph


def call_rare(folder: Path, graph: Graph, cluster: Cluster) -> None:
    """Call them with the data of a tiny graph.

    Args:
        folder: for temporary files.
    """
    _sort_many_keys()
    _place_pieces()
    _sort_more_than_the_memory(folder)
    _decode_wide_entries()
    _refine_a_boundary(folder, graph, cluster)
    _partition_in_rounds(folder, graph, cluster)
    _anneal(graph)
    _unload_a_part()
    _sample(graph)
    _read_ids(folder)
    _count_lines()


def _sort_many_keys() -> None:
    """Sort keys, with weights and with times, in the numbers that the kernels sort instead of NumPy."""
    from gnnloom.pipeline.external_sort.radix import sort_buckets, sort_keys

    keys = np.zeros(4, np.uint64)
    for weights in (np.zeros(4, np.float32), np.zeros(4, np.float64)):
        sort_keys(keys, weights, keys.copy(), weights.copy(), 8)
        sort_buckets(keys, weights, keys.copy(), weights.copy(), np.array([4]), 8)


def _place_pieces() -> None:
    """Place rows and lists that were read in pieces, and find where ranges of rows begin."""
    from gnnloom.pipeline.shards.rows.row_entries import place_rows
    from gnnloom.pipeline.shards.rows.row_numbers import begin_ranges
    from gnnloom.pipeline.shuffle.section_rows import place_elements

    ones, number = np.ones(1, np.int64), np.zeros(1, np.int64)
    pieces = np.zeros(1, np.uint8)
    place_elements(pieces, ones, number, 1, pieces.copy())
    for elements in (np.zeros(1, np.int32), np.zeros(1, np.float32)):
        place_rows(elements, ones, number, elements.copy())
    part = np.zeros(1, np.int32)
    begin_ranges(part, ones, part, ones, np.arange(2), ones, number, np.zeros(2, np.int64))


def _sort_more_than_the_memory(folder: Path) -> None:
    """Sort keys, and copies of one key, in a buffer that is smaller than they are."""
    from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment
    from gnnloom.pipeline.external_sort.lanes import LaneSet, OpenFiles, write_arrays

    count = 64
    for name, keys in {"keys": np.arange(count) * 7 % 61, "copies": np.zeros(count)}.items():
        lane = LaneSet.create(folder, name, 1).lane(0)
        write_arrays(folder, lane, [keys.astype(np.uint64), np.ones(count, np.float32)])
        with OpenFiles(folder) as files:
            segment = Segment(files.lane(lane), 0, count, 0, 8 * count, None)
            for merge in (None, "sum"):
                for _ in KeySorter(folder / "split", count // 4, merge).sort(KeyRange(0, int(keys.max()), [segment])):
                    pass


def _decode_wide_entries() -> None:
    """Decode entries of spill files with the high bits that larger graphs need."""
    from gnnloom.pipeline.external_sort.spill import decode_entries, gather_units

    low, offsets, keys = np.zeros(4, np.uint32), np.array([0, 4]), np.empty(4, np.uint64)
    no_weights = np.empty(0, np.float32)
    for high in (np.zeros(4, kind) for kind in (np.uint8, np.uint16, np.uint32)):
        decode_entries(low, high, 0, offsets, 0, 4, 30, 30, keys)
        gather_units(low, high, no_weights, offsets, 0, 4, 30, 30, 4, np.zeros(1, np.int64), keys, no_weights)


def _refine_a_boundary(folder: Path, graph: Graph, cluster: Cluster) -> None:
    """Refine the boundary of random parts, by a partitioner that leaves them as they are."""
    from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
    from gnnloom.pipeline.partition.multilevel.boundary_refine import BoundaryRefinement, refine_boundary
    from gnnloom.pipeline.partition.multilevel.pieces import store_vector
    from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_hypergraph

    def improve(small: Hypergraph, given: NDArray[np.int32]) -> NDArray[np.int32]:  # noqa: ARG001 - a partitioner's
        return given

    part = np.random.default_rng(0).integers(0, 2, graph.num_vertices, dtype=np.int32)
    path = store_vector(folder / "boundary-parts.npy", part)
    hypergraph = store_hypergraph(folder / "boundary-nets", graph, graph, cluster)
    refine_boundary(hypergraph, path, 2, BoundaryRefinement(lambda *_: True, improve, folder), cluster)


def _anneal(graph: Graph) -> None:
    """Weigh the nets of uniform batches and anneal parts, which a process of its own does for partitions."""
    from gnnloom.pipeline.partition.model.hypergraph import column_net_hypergraph
    from gnnloom.pipeline.partition.stochastic.annealing import anneal
    from gnnloom.pipeline.partition.stochastic.uniform_batches import BatchNets, net_owners, uniform_hypergraph

    nets = BatchNets(column_net_hypergraph(graph, graph), net_owners([graph]), 0.1)
    uniform_hypergraph(nets.full, nets.owner, nets.rate, 2)
    part = np.random.default_rng(0).integers(0, 2, graph.num_vertices, dtype=np.int32)
    anneal(nets, {((1, 0.1),): part}, 2, 0.2, 0)


def _partition_in_rounds(folder: Path, graph: Graph, cluster: Cluster) -> None:
    """Cluster, place and move vertices in rounds of tasks, as hypergraphs of many pins need it."""
    from gnnloom.pipeline.partition.multilevel.cluster_rounds import cluster_in_rounds
    from gnnloom.pipeline.partition.multilevel.heavy_first import deal_heavy_first
    from gnnloom.pipeline.partition.multilevel.move_rounds import Pass, move_in_rounds
    from gnnloom.pipeline.partition.multilevel.net_masks import create_masks, fill_phase
    from gnnloom.pipeline.partition.multilevel.part_files import part_loads
    from gnnloom.pipeline.partition.multilevel.pieces import run_pieces
    from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_hypergraph
    from gnnloom.storage.format.memory_map import create_part_vector

    folder = folder / "rounds"
    hypergraph = store_hypergraph(folder / "nets", graph, graph, cluster)
    cluster_in_rounds(hypergraph, 6 * hypergraph.total_weight // graph.num_vertices, 1, folder, cluster)
    part_path, mask_path, position_path = folder / "part.npy", folder / "masks.npy", folder / "position.npy"
    create_part_vector(part_path, graph.num_vertices)
    deal_heavy_first(hypergraph, part_path, 2, 0, folder / "classes", cluster)
    create_masks(mask_path, hypergraph.num_nets, 1)
    position = np.arange(2)
    np.save(position_path, position)
    run_pieces(fill_phase(hypergraph, part_path, position_path, 0, mask_path, 1), cluster)
    work = Pass(hypergraph, part_path, mask_path, 0, hypergraph.total_weight, 1.0, np.uint64(0), folder / "moves")
    load = part_loads(hypergraph, part_path, 2, cluster)
    move_in_rounds(work, position, load, cluster)


def _unload_a_part() -> None:
    """Balance parts where one part has nearly everything."""
    from gnnloom.pipeline.partition.measure.balance import repair_balance

    part = np.zeros(10, np.int32)
    part[0] = 1
    repair_balance(part, np.ones(10, np.int64), 2, 0.1)


def _sample(graph: Graph) -> None:
    """Draw a batch of every layout, with and without replacement and weights, count batches, and restrict a matrix."""
    from gnnloom.storage.artifacts.whole_graph import read_whole_graph, whole_graph
    from gnnloom.storage.matrix.removal import excluded_entries, without_entries
    from gnnloom.storage.sampling.edge import EdgeSampler
    from gnnloom.storage.sampling.induction import restrict
    from gnnloom.storage.sampling.layered import layered_batch
    from gnnloom.storage.sampling.neighbor import NeighborSampler
    from gnnloom.storage.sampling.normalization import count_samples
    from gnnloom.storage.sampling.vertex import VertexSampler

    whole = read_whole_graph(graph, pattern=True)
    for replace in (False, True):
        NeighborSampler(whole, 0, (2, 2), replace=replace).sample_of(np.arange(10), 0, 0)
    NeighborSampler(whole, 0, (2, 2), neighbor_sampler="labor").sample_of(np.arange(10), 0, 0)
    weighted = whole_graph(dataclasses.replace(whole.matrix, data=np.ones(whole.matrix.nnz, np.float32)))
    layered_batch(weighted, NeighborSampler(weighted, 0, (2, 2)).sample_of(np.arange(10), 0, 0))
    excluded = excluded_entries(whole.matrix, np.arange(20), np.arange(20))
    NeighborSampler(whole, 0, (2, 2)).sample_of(np.arange(5), 0, 0, excluded)
    count_samples(VertexSampler(whole, 0, 10), 2)
    edges = EdgeSampler(whole, 0, 10)
    for symmetric in (False, True):
        edges.exact_normalization(symmetric=symmetric).weights(edges.sample(0, 0))
    row = np.arange(whole.num_vertices)
    for matrix in (whole.matrix, next(iter(graph.blocks()))):
        # The matrix of a shard may be written to, but the matrix of a whole graph may not.
        restrict(matrix, row[: matrix.num_rows], 0, row % 2, row // 2, len(row[::2]))
        # Attention that must not see the edges that it is to predict.
        without_entries(matrix, matrix.indices[:0], matrix.indices[:0])


def read_text(folder: Path, dataset: Dataset, graph: Graph, cluster: Cluster) -> None:
    """Read features and labels from text, in the order of the vertices and by id: by name, if the graph has names."""
    from gnnloom.pipeline.ingest.vertices import ingest_vertices
    from gnnloom.pipeline.sources.format import open_vertices

    ids = graph.original_name() if graph.has_names else [str(vertex) for vertex in range(graph.num_vertices)]
    feature, label = [f"0.5,{row}e-1" for row in range(len(ids))], [str(row % 3) for row in range(len(ids))]
    for kind in ("files", "keyed"):
        files = {}
        for name, values in {"feature": feature, "label": label}.items():
            rows = values if kind == "files" else [f"{each},{value}" for each, value in zip(ids, values, strict=True)]
            path = folder / f"{kind}-{name}.csv"
            path.write_text("\n".join(rows) + "\n", encoding="ascii")
            files[name] = str(path)
        ingest_vertices(dataset, open_vertices(kind, (), files, graph), cluster, graph, allow_others=True)
    # Numbers, lists and words in chosen columns, and text in other files than text.
    path = folder / "columns.csv"
    path.write_text("\n".join(["x,list,word", *(f"{row},[1 2],w" for row in range(len(ids)))]) + "\n", encoding="ascii")
    np.save(folder / "words.npy", np.array(["w"] * len(ids)))
    chosen = {"feature": f"{path}:x,list,word", "label": str(folder / "words.npy")}
    ingest_vertices(dataset, open_vertices("files", (), chosen, graph), cluster, graph, allow_others=True)


def _read_ids(folder: Path) -> None:
    """Read one id per line, copy one field of each line, as for other columns and names of classes, and read dates."""
    from gnnloom.pipeline.sources.reading.fields import chosen_fields
    from gnnloom.pipeline.sources.reading.files import open_files
    from gnnloom.pipeline.sources.reading.text_columns import read_ids
    from gnnloom.pipeline.sources.reading.text_layout import row_blocks
    from gnnloom.pipeline.sources.reading.times import TimeForm

    path = folder / "ids.txt"
    path.write_text("0\n1\n", encoding="ascii")
    for file in open_files([str(path)]):
        list(read_ids(file))
        list(chosen_fields(file, row_blocks(file, 0), b",", (0,)))
    path = folder / "dates.txt"
    path.write_text("0,1,2024-03-05\n", encoding="ascii")
    for file in open_files([str(path)]):
        list(chosen_fields(file, row_blocks(file, 0), b",", (0, 1, 2), times=TimeForm(6, has_zone=False)))


def _count_lines() -> None:
    """Count the lines of a range of a large file in the format of METIS."""
    from gnnloom.pipeline.sources.reading.lines import count_uncommented

    count_uncommented(np.frombuffer(b"1 2", np.uint8), False, False)
