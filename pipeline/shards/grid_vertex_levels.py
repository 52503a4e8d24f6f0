"""Runs the routing of vertex data, range by range and level by level, and lists where its rows are in the end."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet
from gnnloom.pipeline.external_sort.merge_levels import Level, Merge
from gnnloom.pipeline.shards.grid_vertex_plan import VertexPlan
from gnnloom.pipeline.shards.grid_vertex_routing import (
    MergeRowsTask,
    RouteRowsTask,
    VertexTable,
    merge_rows,
    route_rows,
)
from gnnloom.pipeline.shards.lane_records import (
    has_lane,
    kept_records,
    lanes_from_json,
    lanes_to_json,
    recorded_lane,
)
from gnnloom.pipeline.shards.part_order import Order
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.files import read_json, write_json

#: Lanes of a level by span and number.
_Found = Mapping[tuple[int, int], Lane]


@dataclass(frozen=True)
class VertexRouting:
    """The routing of one order's vertex data.

    Attributes:
        order: ``rows`` or ``columns``.
    """

    writer: ArtifactWriter
    order: str
    permutation: Order
    table: VertexTable
    plan: VertexPlan

    def run(self, cluster: Cluster) -> None:
        """Route the rows and merge them level by level, except for what an earlier run has left; list the last lanes.

        A spill file of a level takes rows of many of the level before, so the levels follow each other.
        """
        number, found = self._kept_level()
        if not number:
            found = self._route(cluster)
        for level in self.plan.levels[number + 1 :]:
            found = self._merge_level(level, found, cluster)
            number = level.number
        for before in self.plan.levels[:number]:
            shutil.rmtree(self.writer.work / self._folder(before), ignore_errors=True)
        _save(self.writer.work, self.order, found)

    def _folder(self, level: Level) -> str:
        # A resumed run may have another memory, and then other ranges.
        return f"routed/{self.order}/{self.plan.range_rows}/{level.number}"

    def _merge_name(self, level: Level, merge: Merge) -> str:
        return f"merge/{self.order}/{self.plan.range_rows}/{level.number}/{merge.span:05d}/{merge.source:05d}"

    def _kept_level(self) -> tuple[int, _Found]:
        """The last level of merges that is complete, and its lanes; 0 and none if there is none."""
        for level in reversed(self.plan.levels[1:]):
            merges = list(self.plan.merges(level))
            records = kept_records(self.writer, [self._merge_name(level, merge) for merge in merges])
            if records is not None:
                lanes = map(recorded_lane, records)
                return level.number, {(m.span, m.source): lane for m, lane in zip(merges, lanes, strict=True)}
        return 0, {}

    def _route(self, cluster: Cluster) -> _Found:
        """Sort every range of vertices by position; returns the lanes."""
        plan = self.plan
        lanes = LaneSet.create(self.writer.work, f"{self._folder(plan.levels[0])}/lanes", plan.num_ranges)
        tasks = [
            RouteRowsTask(self.writer, self.order, self.permutation, self.table, plan, number, lanes.lane(number))
            for number in range(plan.num_ranges)
        ]
        records = run_missing("route vertices", cluster, self.writer, route_rows, tasks, "vertices", is_usable=has_lane)
        return {(0, number): recorded_lane(record) for number, record in enumerate(records)}

    def _merge_level(self, level: Level, found: _Found, cluster: Cluster) -> _Found:
        """Merge the spill files of the level before; returns the lanes of this one, by span and number."""
        merges = list(self.plan.merges(level))
        lanes = LaneSet.create(self.writer.work, f"{self._folder(level)}/lanes", len(merges))
        tasks = [
            MergeRowsTask(
                self.writer,
                self._merge_name(level, merge),
                self.plan,
                merge.positions,
                tuple(found[merge.span_before, source] for source in merge.group),
                lanes.lane(number),
            )
            for number, merge in enumerate(merges)
        ]
        records = run_missing("merge vertices", cluster, self.writer, merge_rows, tasks, "vertices", is_usable=has_lane)
        return {(m.span, m.source): recorded_lane(record) for m, record in zip(merges, records, strict=True)}


def _save(work: Path, order: str, found: _Found) -> None:
    """Write the list of the lanes of the last level, which every bucket's task reads instead of all records."""
    # By span: the lanes of a span follow each other.
    spans = {span: [found[at] for at in each] for span, each in groupby(sorted(found), key=lambda at: at[0])}
    content = {
        "spans": list(spans),
        "sizes": [len(lanes) for lanes in spans.values()],
        "lanes": lanes_to_json(list(chain.from_iterable(spans.values()))),
    }
    write_json(_list(work, order), content, durable=False, indent=None)


def lanes_of_spans(work: Path, order: str, spans: list[int]) -> dict[int, list[Lane]]:
    """The lanes with the rows of some spans of the last level."""
    content = read_json(_list(work, order)) if spans else {"spans": [], "sizes": []}
    found, start = {}, 0
    for span, size in zip(content["spans"], content["sizes"], strict=True):
        if span in spans:
            found[span] = lanes_from_json(content["lanes"], start, start + size)
        start += size
    return found


def _list(work: Path, order: str) -> Path:
    return work / "routed" / f"{order}.json"
