"""Vertex data of types in the orders of grid shards: routed to their positions, and written by range of positions.

The vertices of a type have positions anywhere in an order, so each range stores the positions of its vertices of the
type next to their data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shards.grid.grid_plan import GridPlaces
from gnnloom.pipeline.shards.grid.part_order import Order
from gnnloom.pipeline.shuffle.columns import Column, row_bytes
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import MIB, WRITING_BYTES
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task
from gnnloom.pipeline.tasks.sizes import TypedSizes, VertexSizes
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.disk.groups import write_group
from gnnloom.storage.format.array_pieces import ArrayAppender, ArrayForm
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.shards.grid_shards import crop_chunk_rows
from gnnloom.storage.shards.typed_grid_shards import POSITION, type_order_path

#: Bytes of vertex data that a task routes, and bytes per write.
STEP_BYTES: Final = 32 * MIB
#: Bytes of a vertex while it is routed, in addition to two copies of its data: positions, and their sort.
_ROUTE_BYTES: Final = 64


@dataclass(frozen=True)
class RouteTypeTask(Task):
    """Sorts vertices ``start`` to ``stop`` of a type by their positions in an order.

    Attributes:
        vertices: artifact of the data of the type.
        permutation: of the order; None for the order of the ids.
        first: number of the first vertex of the type.
        lane: where the run goes, relative to the work folder.
    """

    vertices: Path
    shuffle: Shuffle
    permutation: Order | None
    first: int
    start: int
    stop: int
    lane: Lane


@dataclass(frozen=True)
class OrderedType:
    """The data of a type on their way to an order.

    Attributes:
        name: name of the type.
        dims: names of all dimensions of each array.
    """

    name: str
    shuffle: Shuffle
    dims: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class WriteTypesTask(Task):
    """Writes the data of all types at one range of positions of an order.

    Attributes:
        order: ``rows`` or ``columns``.
        row: number of the range.
        span: first and last (exclusive) position.
    """

    order: str
    row: int
    span: tuple[int, int]
    types: tuple[OrderedType, ...]


def route_vertices_of_type(task: RouteTypeTask) -> int:
    """Route the data of some vertices; returns their number."""
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        position = np.arange(task.first + task.start, task.first + task.stop, dtype=np.int64)
        if task.permutation is not None:
            position = task.permutation.forward(position)
        stored, order = Vertices(Artifact(task.vertices)), np.argsort(position)
        index = Index.of_positions(position[order])
        out.add_columns(index, lambda name: stored.array(name).read(task.start, task.stop)[order])
    return task.stop - task.start


def write_types(task: WriteTypesTask) -> int:
    """Write the data of the vertices at a range of positions; returns their number."""
    total, (first, last) = 0, task.span
    with OpenFiles(task.writer.work) as files, task.writer.task(task.name) as output:
        for each in task.types:
            rows, path = each.shuffle.rows(task.writer.work, files), type_order_path(task.order, task.row, each.name)
            count = sum(section.num_rows for section in rows.sections(first, last))
            # A type without vertices here has no arrays.
            if not count:
                continue
            folder = task.writer.path
            for name in path.split("/"):
                folder = folder / name
                write_group(folder, {})
            columns = {POSITION: Column(POSITION, "int64"), **{column.name: column for column in each.shuffle.columns}}
            dims = {POSITION: ("member",), **each.dims}
            appenders = {}
            for name, column in columns.items():
                chunk_rows = crop_chunk_rows(count, column.num_bytes)
                form = ArrayForm(f"{path}/{name}", (count, *column.trailing), column.dtype, dims[name], chunk_rows)
                appenders[name] = ArrayAppender(task.writer.path, form)
            for step in rows.steps(STEP_BYTES, first, last):
                for name, appender in appenders.items():
                    appender.append(step.position if name == POSITION else step.column(name))
            for appender in appenders.values():
                output.add(appender.close())
            total += count
    return total


@dataclass(frozen=True, eq=False)
class TypeOrdersPlan:
    """The phases that write the data of all types.

    Attributes:
        sizes: of the graph.
        data: sizes of the data of each type that has some.
        orders: names of the orders to store.
        grid_rows: ranges of positions of an order.
        of_types: artifact of the data of each type, and names of all dimensions of each array.
    """

    sizes: TypedSizes
    data: Mapping[str, VertexSizes]
    orders: tuple[str, ...]
    grid_rows: int
    places: GridPlaces
    of_types: Mapping[str, tuple[Path, Mapping[str, tuple[str, ...]]]] = field(default_factory=dict)

    def phases(self) -> list[Phase]:
        """All phases; none without data."""
        if not self.data:
            return []
        plans = list(self._plans.values())
        route = Phase(
            "route vertices",
            route_vertices_of_type,
            list(self._route_tasks()),
            "vertices",
            files=tuple(plan.files for plan in plans),
        )
        write = Phase(
            "write vertices",
            write_types,
            list(self._write_tasks()),
            "vertices",
            reads=tuple(plan.read_files for plan in plans),
            makes_arrays=True,
            arrays=1 + max(len(each.types) for each in self.data.values()),
        )
        return [route, *(phase for plan in plans for phase in plan.merges("merge vertices")), write]

    @cached_property
    def _plans(self) -> dict[tuple[str, str], ShufflePlan]:
        """The plan of each order and type."""
        plans = {}
        for order in self.orders:
            for name, data in self.data.items():
                columns = tuple(Column(array, dtype, shape) for array, (dtype, shape) in data.types.items())
                shuffle = Shuffle(f"vertices/{order}-{name}", self.sizes.num_vertices, columns, self.grid_rows)
                count, size = self.sizes.types[name], data.row_bytes
                num_tasks = len(range(0, count, self._step(name)))
                plans[order, name] = ShufflePlan(self.places.writer, shuffle, num_tasks, count * size, count)
        return plans

    def _step(self, name: str) -> int:
        """Vertices of a type that a task routes."""
        return max(1, STEP_BYTES // max(1, self.data[name].row_bytes))

    def _route_tasks(self) -> Iterator[RouteTypeTask]:
        for (order, name), plan in self._plans.items():
            path, step = self.of_types.get(name, (Path(), {}))[0], self._step(name)
            for number, start in enumerate(range(0, self.sizes.types[name], step)):
                stop = min(start + step, self.sizes.types[name])
                size = (stop - start) * row_bytes(plan.shuffle.columns)
                needs = Needs(size, size + 8 * (stop - start), 0, 2 * size + _ROUTE_BYTES * (stop - start))
                where = self.places.orders[order], self.sizes.first[name], start, stop, plan.lane(number)
                task = f"route/{plan.shuffle.name}/{number:05d}"
                yield RouteTypeTask(self.places.writer, task, needs, path, plan.shuffle, *where)

    def _write_tasks(self) -> Iterator[WriteTypesTask]:
        total = sum(self.sizes.types[name] * (8 + each.row_bytes) for name, each in self.data.items())
        size = -(-total // self.grid_rows)
        for order in self.orders:
            found = [(name, plan) for (of, name), plan in self._plans.items() if of == order]
            types = tuple(OrderedType(name, plan.shuffle, self._dims(name)) for name, plan in found)
            for row in range(self.grid_rows):
                span = split_range(self.sizes.num_vertices, self.grid_rows, row)
                opens = sum(plan.opens(span) for _, plan in found)
                needs = Needs(size, size, opens, 3 * STEP_BYTES + WRITING_BYTES)
                yield WriteTypesTask(self.places.writer, f"order/{order}/{row:03d}", needs, order, row, span, types)

    def _dims(self, name: str) -> Mapping[str, tuple[str, ...]]:
        return self.of_types.get(name, (Path(), {}))[1]
