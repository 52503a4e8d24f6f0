"""Finds how many hops a module for graphs with types looks, so that a batch of all neighbors gives its whole outputs.

The module is tried on a small graph with the same types and relations, as modules for graphs without types are; see
:mod:`gnnloom.trainer.models.networks.reach`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.typed.typed_names import reverse_name
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.layers.graph_view import MatrixView
from gnnloom.storage.sampling.layers.typed import RelationView, TypedNeighborSampler, TypedSample
from gnnloom.trainer.data.typed_vertices import TypedSchema
from gnnloom.trainer.loader.choices import EDGE_NAMES
from gnnloom.trainer.loader.hops import edge_index
from gnnloom.trainer.models.networks.reach import alike, evaluating, other_values
from gnnloom.trainer.models.networks.typed_model import TypedBatch, TypedModel
from gnnloom.trainer.place.place import Place

#: Hops that a module is tried with beyond one for each layer: for each layer, and further ones.
_MOST_OF_LAYER, _MOST_FURTHER = 2, 4
#: Of the graph that it is tried on: vertices of a type at each distance from the seeds, besides a source and a sink;
#: levels that an edge leads back, which closes a cycle; isolated vertices of a type.
_WIDTH, _BACK, _ISOLATED = 3, 2, 4
#: Random parameters that it is tried with: some may make all outputs zero, as behind a ReLU.
_DRAWS: Final = 2
#: Isolated vertices have features of up to this size, others of at most 1.
_EXTREME: Final = 4.0


@dataclass(frozen=True)
class TypedReach:
    """The hops that a module reads.

    Attributes:
        hops: number of hops of all neighbors in a batch.
        is_exact: with these hops, outputs equal the outputs on the whole graph. Otherwise no number of hops gave these.
    """

    hops: int
    is_exact: bool


def find_typed_reach(model: TypedModel, num_hops: int) -> TypedReach:
    """Try what the module of a model reads. Communicates nothing; the same on every rank.

    Args:
        num_hops: hops that training uses, for a module whose reach is not found.
    """
    most = _MOST_OF_LAYER * model.num_layers + _MOST_FURTHER
    place, generator = Place(torch.float64), torch.Generator().manual_seed(0)
    try:
        trial, found = _Trial(model.schema, most + 2, place, generator), list[int]()
        for _ in range(_DRAWS):
            with (
                torch.no_grad(),
                place.creating_modules(),
                evaluating(model.module),
                other_values(model.module, generator, place),
            ):
                found.append(trial.hops(model, most))
    except Exception:  # noqa: BLE001 - whatever the module raises; it may still take the real graph
        return TypedReach(num_hops, is_exact=False)
    return TypedReach(max(found), is_exact=True) if min(found) else TypedReach(num_hops, is_exact=False)


class _Trial:
    """A small graph with the types and relations of a schema, and random values."""

    def __init__(self, schema: TypedSchema, depth: int, place: Place, generator: torch.Generator) -> None:
        """Draw the values.

        Args:
            depth: levels; vertices of the first one are at every distance from vertices of the others.
        """
        self._schema, self._place = schema, place
        size = depth * (_WIDTH + 2) + _ISOLATED
        rng = np.random.default_rng(0)
        # The numbers of vertices say nothing about their levels.
        numbers = {name: rng.permutation(size if count else 0) for name, count in schema.counts.items()}
        self._counts = {name: len(each) for name, each in numbers.items()}
        levels = {name: each[: depth * (_WIDTH + 2)].reshape(-1, _WIDTH + 2) for name, each in numbers.items()}
        self._matrices, position = dict[Any, CSR](), dict[Any, NDArray[np.int64]]()
        for shift, (source, name, target) in enumerate(schema.columns):
            own, of = (source, name, target), (target, reverse_name(name), source)
            if of in self._matrices:
                self._matrices[own], position[own] = _turned(self._matrices[of])
            else:
                shape = self._counts[source], self._counts[target]
                self._matrices[own] = _matrix(levels[source], levels[target], shift, shape)

        def uniform(rows: int, width: int) -> Tensor:
            return 2 * place.uniform((rows, width), generator) - 1

        self._x = {name: uniform(self._counts[name], width) for name, width in schema.widths.items()}
        for name, rows in self._x.items():
            isolated = place.from_numpy(numbers[name][-_ISOLATED:])
            rows[isolated] = rows[isolated].sign() * (_EXTREME / 2 + rows[isolated].abs() * _EXTREME / 2)
        self._columns = dict[Any, dict[str, Tensor]]()
        for each, columns in schema.columns.items():
            if each in position:
                # A reverse has the columns of the edges of its relation.
                turned, at = self._columns[each[2], reverse_name(each[1]), each[0]], place.from_numpy(position[each])
                self._columns[each] = {name: values[at] for name, values in turned.items()}
            else:
                self._columns[each] = {
                    name: uniform(self._matrices[each].nnz, width) for name, width in columns.items()
                }
        first = {name: np.sort(levels[name][0, :_WIDTH]) for name in schema.of_types}
        some = {
            name: np.sort(rng.choice(self._counts[name], self._counts[name] // 3, replace=False))
            for name in schema.of_types
        }
        each_alone = ({name: rows[at : at + 1] for name, rows in first.items()} for at in range(_WIDTH))
        self._seeds = (first, some, *each_alone)
        ends = np.cumsum([0, *(self._counts[name] for name in schema.of_types)])
        #: Where the rows of each type begin in what the module returns for the whole graph.
        self._first = dict(zip(schema.of_types, ends.tolist(), strict=False))

    def hops(self, model: TypedModel, most: int) -> int:
        """The least number of hops that suffice with the present parameters; 0 if no number does."""
        expected = model.output(self._whole(model.num_layers), self._place)
        first, *others = self._seeds
        if not self._rows_of(expected, first).isfinite().all():
            return 0
        for hops in range(model.num_layers, most + 1):
            # What looks at all vertices, such as pooling, may give the same outputs for some batch by chance.
            cases = [(first, hops), (first, hops + 1), *((each, hops) for each in others)]
            if all(
                alike(model.output(self._batch(*case), self._place), self._rows_of(expected, case[0])) for case in cases
            ):
                return hops
        return 0

    def _rows_of(self, output: Tensor, seeds: Mapping[str, NDArray[np.int64]]) -> Tensor:
        """The rows of some vertices in what the module returns for the whole graph."""
        numbers = [rows + self._first[name] for name, rows in seeds.items()]
        return output[self._place.from_numpy(np.concatenate(numbers))]

    def _whole(self, num_layers: int) -> TypedBatch:
        vertices = {name: np.arange(count) for name, count in self._counts.items()}
        entries = {each: np.arange(matrix.nnz) for each, matrix in self._matrices.items()}
        counts = {name: [count, *[0] * num_layers] for name, count in self._counts.items()}
        drawn = {each: [matrix.nnz, *[0] * (num_layers - 1)] for each, matrix in self._matrices.items()}
        return self._filled(vertices, self._matrices, entries, counts, drawn)

    def _batch(self, seeds: Mapping[str, NDArray[np.int64]], hops: int) -> TypedBatch:
        """The seeds and all neighbors up to some hops."""
        names = {each: str(number) for number, each in enumerate(self._matrices)}
        views = [RelationView(names[each], each[0], each[2], MatrixView(self._matrices[each])) for each in names]
        fanouts = dict.fromkeys(names.values(), (ALL,) * hops)
        sampler = TypedNeighborSampler(list(self._counts), views, 0, fanouts)
        found: TypedSample = sampler.sample_of(seeds, 0, 0)
        blocks = {each: found.blocks[name] for each, name in names.items()}
        return self._filled(
            found.vertices,
            {each: block.matrix for each, block in blocks.items()},
            {each: block.entry for each, block in blocks.items()},
            found.num_vertices,
            {each: found.num_entries[name] for each, name in names.items()},
        )

    def _filled(
        self,
        vertices: Mapping[str, NDArray[np.int64]],
        matrices: Mapping[Any, CSR],
        entries: Mapping[Any, NDArray[np.int64]],
        num_vertices: Mapping[str, list[int]],
        num_entries: Mapping[Any, list[int]],
    ) -> TypedBatch:
        """A batch with the values of its vertices and edges."""
        schema, place, fields = self._schema, self._place, dict[Any, dict[str, Any]]()
        for name, own in vertices.items():
            at = place.from_numpy(own)
            # A vector for each vertex of the real graph, which may have fewer.
            fields[name] = {"n_id": at % max(1, schema.counts[name]), "num_sampled_nodes": num_vertices[name]}
            if name in self._x:
                fields[name]["x"] = self._x[name][at]
        for each, matrix in matrices.items():
            found: dict[str, Any] = {"edge_index": edge_index(matrix, place), "num_sampled_edges": num_entries[each]}
            for name, values in self._columns[each].items():
                taken = values[place.from_numpy(entries[each])]
                whole = (taken[:, 0] > 0).to(torch.int64) if name in {"time", "label"} else taken[:, 0]
                found[EDGE_NAMES[name]] = taken if name == "feature" else whole
            fields[each] = found
        return TypedBatch(fields, {name: num_vertices[name][0] for name in schema.of_types})


def _matrix(sources: NDArray[np.int64], targets: NDArray[np.int64], shift: int, shape: tuple[int, int]) -> CSR:
    """The edges of a relation: to every level from the next one, within levels, from a source, and to a sink.

    Args:
        sources, targets: (depth, _WIDTH + 2) vertices; a source and a sink are the last two of each level.
        shift: differs between relations, which then have different edges.
        shape: number of sources and of targets of the matrix.
    """
    edges = list[tuple[int, int]]()
    for distance in range(min(len(sources), len(targets))):
        *here, _, sink = targets[distance].tolist()
        own = sources[distance].tolist()
        edges += [(own[_WIDTH], here[0]), (own[1], sink), (own[2], sink)]
        for at, vertex in enumerate(here):
            further = sources[distance + 1 : distance + 2, (np.arange(at, at + 2 + (at == 0)) + shift) % _WIDTH]
            edges += [(each, vertex) for each in further.ravel().tolist()]
            if (distance + at) % 2:
                edges.append((own[(at + 1) % _WIDTH], vertex))
            if distance >= _BACK and at % 2:
                edges.append((int(sources[distance - _BACK, at]), vertex))
    column, row = np.array(sorted(set(edges)), np.int64).reshape(-1, 2).T
    return _in_rows(row, column, shape[1], shape[0])[0]


def _turned(matrix: CSR) -> tuple[CSR, NDArray[np.int64]]:
    """The transposed pattern, and (nnz,) int64 positions of its entries in the matrix."""
    row = np.repeat(np.arange(matrix.num_rows), np.diff(matrix.indptr))
    return _in_rows(matrix.indices.astype(np.int64), row, matrix.num_columns, matrix.num_rows)


def _in_rows(
    row: NDArray[np.int64], column: NDArray[np.int64], num_rows: int, num_columns: int
) -> tuple[CSR, NDArray[np.int64]]:
    """A matrix of given entries, and (nnz,) int64 positions of its entries among the given ones."""
    order = np.lexsort((column, row))
    indptr = np.searchsorted(row[order], np.arange(num_rows + 1))
    return CSR(0, indptr, column[order].astype(np.int32), None, num_columns), order
