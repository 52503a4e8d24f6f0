"""Runs the routing of vertex data, range by range and level by level, and lists where its rows are in the end."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet
from gnnloom.pipeline.external_sort.merge_levels import Level
from gnnloom.pipeline.shards.grid.grid_vertex_plan import VertexPlan
from gnnloom.pipeline.shards.grid.grid_vertex_routing import (
    MergeRowsTask,
    RouteRowsTask,
    VertexTable,
    merge_rows,
    route_rows,
)
from gnnloom.pipeline.shards.grid.part_order import Order
from gnnloom.pipeline.shards.lane_records import (
    At,
    has_lane,
    kept_level,
    recorded_lane,
    save_lanes,
)
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter

#: Lanes of a level by span and number.
_Found = Mapping[At, Lane]


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
        number, kept = kept_level(self.writer, self.plan.levels, self._merge_names)
        found: _Found = {at: recorded_lane(record) for at, record in kept.items()}
        self._remove_before(number)
        if not number:
            found = self._route(cluster)
        for level in self.plan.levels[number + 1 :]:
            found = self._merge_level(level, found, cluster)
            self._remove_before(level.number)
        save_lanes(routed_list(self.writer.work, self.order), found)

    def _remove_before(self, number: int) -> None:
        """Remove the spill files of the levels before one that is complete."""
        for level in self.plan.levels[:number]:
            shutil.rmtree(self.writer.work / self._folder(level), ignore_errors=True)

    def _folder(self, level: Level) -> str:
        # A resumed run may have another memory, and then other ranges.
        return f"routed/{self.order}/{self.plan.range_rows}/{level.number}"

    def _merge_names(self, level: Level) -> dict[At, str]:
        """Names of the tasks that make the spill files of a level, by span and number."""
        folder = f"merge/{self.order}/{self.plan.range_rows}/{level.number}"
        return {(m.span, m.source): f"{folder}/{m.span:05d}/{m.source:05d}" for m in self.plan.merges(level)}

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
        names, merges = self._merge_names(level), list(self.plan.merges(level))
        lanes = LaneSet.create(self.writer.work, f"{self._folder(level)}/lanes", len(merges))
        tasks = [
            MergeRowsTask(
                self.writer,
                names[merge.span, merge.source],
                self.plan,
                merge.positions,
                tuple(found[merge.span_before, source] for source in merge.group),
                lanes.lane(number),
            )
            for number, merge in enumerate(merges)
        ]
        records = run_missing("merge vertices", cluster, self.writer, merge_rows, tasks, "vertices", is_usable=has_lane)
        return dict(zip(names, map(recorded_lane, records), strict=True))


def routed_list(work: Path, order: str) -> Path:
    """The list of the lanes of the last level of an order, by span of positions."""
    return work / "routed" / f"{order}.json"
