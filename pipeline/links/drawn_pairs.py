"""The edges of a graph, split by their keys: each row block routes its own to their splits, by row and column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.links.edge_keys import EdgeKeys
from gnnloom.pipeline.shuffle.columns import Column, row_bytes
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.links import CLASS, PAIR, VALUE_DTYPES
from gnnloom.storage.format.artifact import ArtifactWriter

#: Splits in the order of their keys: the keys of test pairs are the smallest.
KEY_ORDER: Final = ("test", "valid", "train")


@dataclass(frozen=True)
class SplitTask(Task):
    """Routes the edges of a block to their splits.

    Attributes:
        edges: of the graph.
        thresholds: highest keys of the splits, except perhaps the last one, which then gets all others; if it has a
            threshold too, the others are pairs of no split.
        splits: where the pairs of each split go, and the lane of the task.
    """

    edges: EdgeKeys
    thresholds: tuple[int, ...]
    block: int
    splits: Mapping[str, tuple[Shuffle, Lane]]


def split_plans(
    writer: ArtifactWriter, sizes: GraphSizes, weight_dtype: str | None, *, has_edges: bool = False, kind: str = PAIR
) -> dict[str, ShufflePlan]:
    """Plans that bring the pairs to the arrays of their split. Runs stay unmerged: readers share them evenly in order.

    Args:
        weight_dtype: dtype of the weights that pairs for training carry; None if they carry none.
        has_edges: pairs carry their positions among the edges of a relation.
        kind: kind of the values that pairs carry; none for ``pair``.
    """
    pair = (Column("source", "int64"), Column("target", "int64"), *([Column("edge", "int64")] if has_edges else []))
    pair += () if kind == PAIR else (Column("value", VALUE_DTYPES[kind]),)
    plans = {}
    for split in KEY_ORDER:
        weight = (Column("weight", weight_dtype),) if split == "train" and weight_dtype else ()
        plans[split] = ShufflePlan.unmerged(writer, Shuffle(f"pairs/{split}", 1, pair + weight, 1), sizes.num_blocks)
    return plans


def split_phase(
    writer: ArtifactWriter,
    edges: EdgeKeys,
    sizes: GraphSizes,
    thresholds: Sequence[int],
    plans: Mapping[str, ShufflePlan],
) -> Phase:
    """The phase that routes every edge to its split."""
    tasks = []
    routed = row_bytes(plans["train"].shuffle.columns)
    for block, nnz in enumerate(sizes.block_nnz):
        pairs = nnz // 2 if sizes.symmetric else nnz
        needs = Needs(edges.read_bytes(sizes, block), routed * pairs, memory=edges.reading_bytes(writer.scratch))
        splits = {split: (plan.shuffle, plan.lane(block)) for split, plan in plans.items()}
        tasks.append(SplitTask(writer, f"split/{block:05d}", needs, edges, tuple(thresholds), block, splits))
    return Phase("split edges", split_block, tasks, files=tuple(plan.files for plan in plans.values()))


def split_block(task: SplitTask) -> int:
    """Route the edges of a block; returns how many it has.

    Raises:
        InputError: an edge lacks a value of the kind that pairs carry.
    """
    total, left_out, classes = 0, 0, 0
    # Keys at a threshold belong to its split.
    ends = [task.edges.words_of(threshold) for threshold in task.thresholds]
    with task.writer.task(task.name) as output, ExitStack() as opened:
        runs = {split: opened.enter_context(way.routed(output, lane)) for split, (way, lane) in task.splits.items()}
        for found in task.edges.read(task.block, task.writer.scratch):
            total, left_out = total + len(found.source), left_out + found.left_out
            if found.value is not None and task.edges.kind == CLASS:
                classes = max(classes, 1 + int(found.value.max(initial=-1)))
            number = np.zeros(len(found.source), np.int8)
            for end in ends:
                number += found.above(end)
            for place, split in enumerate(task.splits):
                own = np.flatnonzero(number == place)
                if not len(own):
                    continue
                values = {"source": found.source[own], "target": found.target[own]}
                if found.edge is not None:
                    values["edge"] = found.edge[own]
                if found.weight is not None:
                    values["weight"] = found.weight[own]
                if found.value is not None:
                    values["value"] = found.value[own]
                runs[split].add(Index.of_offsets(np.array([0, len(own)], np.int64)), values)
        output.facts |= {"loops": left_out} | ({"classes": classes} if task.edges.kind == CLASS else {})
    return total
