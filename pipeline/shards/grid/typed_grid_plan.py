"""The plan of grid shards of a graph with types, for stored artifacts or for stated sizes.

The entries of the row blocks of all relations are scattered by grid cell, and one task sorts and writes the blocks of
all relations in a cell. The transposed variants are made from the reverses of the relations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gnnloom.pipeline.shards.grid.grid_plan import GridPlaces
from gnnloom.pipeline.shards.grid.grid_scatter import SCATTER_BYTES, run_entries
from gnnloom.pipeline.shards.grid.relation_cells import (
    LOOKED_UP,
    SORT_BYTES,
    ScatterRelationTask,
    WriteRelationCellsTask,
    relation_shuffle,
    scatter_relation,
    write_relation_cells,
)
from gnnloom.pipeline.shards.grid.type_orders import TypeOrdersPlan
from gnnloom.pipeline.shards.shard_options import GridOptions
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.tasks.memory import WRITING_BYTES, rows_that_fit
from gnnloom.pipeline.tasks.phase import Needs, Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes, TypedSizes, VertexSizes
from gnnloom.storage.artifacts.typed.union import TypedMatrices
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.shards.grid_shards import cell_path
from gnnloom.storage.shards.grid_variants import stored_variants


@dataclass(frozen=True)
class TypedGridPlaces:
    """Files that tasks read and write; the defaults are for plans that are counted and not run.

    Attributes:
        grid: the writer, and the orders of rows and columns.
        relations, reverses: the matrices of the variants, and of the transposed variants.
        of_types: artifact of the data of each type, and names of all dimensions of each array.
    """

    grid: GridPlaces = field(default_factory=GridPlaces)
    relations: TypedMatrices = field(default_factory=lambda: TypedMatrices(Path(), None))
    reverses: TypedMatrices = field(default_factory=lambda: TypedMatrices(Path(), None))
    of_types: Mapping[str, tuple[Path, Mapping[str, tuple[str, ...]]]] = field(default_factory=dict)


def relation_cell_name(variant: str, row: int, column: int) -> str:
    """Name of the task that writes a cell."""
    return f"cell/{cell_path(variant, row, column)}"


@dataclass(frozen=True, eq=False)
class TypedGridPlan:
    """The phases that make grid shards of a graph with types, once the reverses of its relations exist.

    Attributes:
        sizes: of the relations and their reverses.
        columns: columns of the edges of each relation.
        vertices: data of the types that have some.
        memory: bytes that a worker may use.
    """

    sizes: TypedSizes
    columns: Mapping[str, tuple[Column, ...]]
    vertices: Mapping[str, VertexSizes]
    options: GridOptions
    memory: int
    places: TypedGridPlaces

    def phases(self) -> list[Phase]:
        """All phases.

        Raises:
            BudgetError: a worker's memory is too small for any buffer.
        """
        plans, most = self._plans, max((len(each) for each in self.columns.values()), default=0)
        scatter = Phase(
            "scatter blocks",
            scatter_relation,
            [task for variant, plan in plans.items() for task in self._scatter_tasks(variant, plan)],
            files=tuple(plan.files for plan in plans.values()),
        )
        write = Phase(
            "write cells",
            write_relation_cells,
            [task for variant, plan in plans.items() for task in self._cell_tasks(variant, plan)],
            reads=tuple(plan.read_files for plan in plans.values()),
            makes_arrays=True,
            arrays=2 + most,
        )
        merges = [plan.merges("merge cells") for plan in plans.values()]
        return [scatter, *(phase for phases in merges for phase in phases), write, *self._orders.phases()]

    @property
    def _orders(self) -> TypeOrdersPlan:
        orders = ("rows", "columns") if self.options.permutation == "double" else ("rows",)
        what = self.sizes, self.vertices, orders, self.options.grid[0]
        return TypeOrdersPlan(*what, self.places.grid, self.places.of_types)

    @property
    def stored_variants(self) -> list[str]:
        """The variants of each relation to store."""
        is_double = self.options.permutation == "double"
        return sorted(set(stored_variants(symmetric=False, double=is_double).values()))

    @property
    def _num_cells(self) -> int:
        return self.options.grid[0] * self.options.grid[1]

    def _matrices(self, variant: str) -> list[tuple[str, GraphSizes]]:
        """Name of the relation, and sizes of the matrix, of each matrix of a variant."""
        if variant.endswith("transposed"):
            return list(self.sizes.reverses.items())
        return [(name, sizes) for name, (_, _, sizes) in self.sizes.relations.items()]

    @property
    def _numbered(self) -> bool:
        return any(self.columns.values())

    @property
    def _key_bytes(self) -> int:
        """Bytes of an entry on its way to its cell: its key and, if any edge has columns, the number of the edge."""
        return 16 if self._numbered else 8

    @cached_property
    def _plans(self) -> dict[str, ShufflePlan]:
        plans = {}
        for variant in self.stored_variants:
            matrices = [sizes for _, sizes in self._matrices(variant)]
            shuffle = relation_shuffle(variant, self.options.grid, len(matrices), numbered=self._numbered)
            keys = self._num_cells * sum(self._runs(nnz) for sizes in matrices for nnz in sizes.block_nnz)
            size, tasks = self.sizes.nnz * self._key_bytes, sum(sizes.num_blocks for sizes in matrices)
            plans[variant] = ShufflePlan(self.places.grid.writer, shuffle, tasks, size, keys)
        return plans

    def _runs(self, nnz: int) -> int:
        """Number of runs in which a block of ``nnz`` entries is routed."""
        return max(1, -(-nnz // run_entries(self.memory)))

    def _scatter_tasks(self, variant: str, plan: ShufflePlan) -> list[ScatterRelationTask]:
        places, grid, tasks = self.places, self.options.grid, list[ScatterRelationTask]()
        matrices = places.reverses if variant.endswith("transposed") else places.relations
        found = self._matrices(variant)
        for number, (name, sizes) in enumerate(found):
            read = sizes.entry_bytes + (8 if self.columns.get(name) else 0)
            for block, (rows, nnz) in enumerate(zip(sizes.block_rows, sizes.block_nnz, strict=True)):
                needs = Needs(
                    reads=nnz * read + 8 * rows,
                    writes=nnz * self._key_bytes + 16 * (self._num_cells + 1) * self._runs(nnz),
                    memory=min(nnz, run_entries(self.memory)) * SCATTER_BYTES + 8 * rows,
                )
                task = f"scatter/{plan.shuffle.name}/{number:05d}-{block:05d}"
                which = matrices, number, len(found), self.sizes.num_vertices, plan.shuffle, block
                where = *places.grid.sides(variant), grid, self.memory, plan.lane(len(tasks))
                tasks.append(ScatterRelationTask(places.grid.writer, task, needs, *which, *where))
        return tasks

    def _cell_tasks(self, variant: str, plan: ShufflePlan) -> list[WriteRelationCellsTask]:
        n, (rows, columns) = self.sizes.num_vertices, self.options.grid
        matrices = self.places.reverses if variant.endswith("transposed") else self.places.relations
        found, cells = self._matrices(variant), self._num_cells
        entries = [-(-sizes.nnz // cells) for _, sizes in found]
        value_bytes = [sum(each.num_bytes for each in self.columns.get(name, ())) for name, _ in found]
        index, most = index_dtype(n // columns).itemsize, min(max(entries, default=0), self._capacity)
        needs = [(index + size) * count for size, count in zip(value_bytes, entries, strict=True)]
        tasks = []
        for number in range(cells):
            span = number * len(found), (number + 1) * len(found)
            needed = Needs(
                reads=sum(entries) * self._key_bytes + sum(map(int.__mul__, value_bytes, entries)),
                writes=sum(needs) + 8 * (n // rows) * len(found),
                opens=plan.opens(span),
                memory=most * SORT_BYTES
                + 16 * (n // rows)
                + 2 * LOOKED_UP * max(value_bytes, default=0)
                + WRITING_BYTES,
            )
            cell = divmod(number, columns)
            what = matrices, variant, cell, (rows, columns), n, plan.shuffle, self.memory
            name = relation_cell_name(variant, *cell)
            tasks.append(WriteRelationCellsTask(self.places.grid.writer, name, needed, *what))
        return tasks

    @property
    def _capacity(self) -> int:
        return rows_that_fit(self.memory, SORT_BYTES)
