"""Finds how many hops a module for graphs with types looks, so that a batch of all neighbors gives its whole outputs.

The module is tried on a small graph with the same types and relations, as modules for graphs without types are; see
:mod:`gnnloom.trainer.models.networks.reach`. Where the calls of its submodules are layers, as in
:mod:`gnnloom.trainer.models.networks.typed_layers`, a few hops, usually one, are enough for each layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
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
from gnnloom.trainer.models.networks.module_model import evaluating
from gnnloom.trainer.models.networks.reach import alike, other_values
from gnnloom.trainer.models.networks.typed_layers import (
    LayerCall,
    OutputRows,
    calls_of,
    last_outputs,
    layers_of,
    level_outputs,
)
from gnnloom.trainer.models.networks.typed_model import TypedBatch, TypedModel
from gnnloom.trainer.place.place import Place

#: Hops that a module is tried with beyond one for each layer: for each layer, and further ones.
_MOST_OF_LAYER, _MOST_FURTHER = 2, 4
#: Hops of a single layer that are tried.
_MOST_OF_ONE: Final = 3
#: Sizes of the trial graph: vertices of a type at each distance from the seeds, in addition to a source and a sink;
#: levels that a back edge, which closes a cycle, spans; isolated vertices of a type.
_WIDTH, _BACK, _ISOLATED = 3, 2, 4
#: Number of random parameter sets to try: some may make all outputs zero, as after a ReLU.
_DRAWS: Final = 2
#: Isolated vertices have features of up to this size, others of at most 1.
_EXTREME: Final = 4.0


@dataclass(frozen=True)
class TypedReach:
    """The hops that a module reads.

    Attributes:
        hops: number of hops of all neighbors in a batch, of each layer if there are calls of layers.
        is_exact: with these hops, outputs equal the outputs on the whole graph. Otherwise no tried number of hops gave
            equal outputs.
        layers: calls of the layers of the module, which are then evaluated one after the other; none if the module is
            called as a whole.
    """

    hops: int
    is_exact: bool
    layers: tuple[LayerCall, ...] = ()

    @property
    def num_levels(self) -> int:
        """Levels of the layers; 1 without layers."""
        return max((each.level for each in self.layers), default=1)


def types_of_levels(schema: TypedSchema, reach: TypedReach) -> dict[int, list[str]]:
    """Types of vertices whose outputs are read, by level except the last, in the same order on all ranks."""
    names, found = set(schema.of_types), dict[int, list[str]]()
    for level in range(reach.num_levels - 1, 0, -1):
        for _ in range(reach.hops):
            names |= {each[0] for each in schema.columns if each[2] in names}
        found[level] = [name for name in schema.counts if name in names]
    return found


def find_typed_reach(model: TypedModel, num_hops: int, *, by_layer: bool = True) -> TypedReach:
    """Find by trial how many hops a model's module reads. Communicates nothing; the same on every rank.

    Args:
        num_hops: hops that training uses, for a module whose reach is not found.
        by_layer: look for layers.
    """
    most, unknown = _MOST_OF_LAYER * model.num_layers + _MOST_FURTHER, TypedReach(num_hops, is_exact=False)
    place = Place(torch.float64)

    def tried(find: Callable[[_Trial], int]) -> int:
        """Largest number of hops that any random parameters need; 0 if some find no number."""
        generator = torch.Generator().manual_seed(0)
        trial, found = _Trial(model.schema, most + 2, place, generator), list[int]()
        for _ in range(_DRAWS):
            with (
                torch.no_grad(),
                place.creating_modules(),
                evaluating(model.module),
                other_values(model.module, generator, place),
            ):
                found.append(find(trial))
        return max(found) if min(found) else 0

    # The module may still take the real graph.
    if by_layer:
        layers = list[tuple[LayerCall, ...]]()
        with suppress(Exception):
            hops = tried(lambda trial: trial.hops_by_layer(model, layers))
            if hops and layers[0] == layers[-1]:
                return TypedReach(hops, is_exact=True, layers=layers[0])
    try:
        hops = tried(lambda trial: trial.hops(model, most))
    except Exception:  # noqa: BLE001
        return unknown
    return TypedReach(hops, is_exact=True) if hops else unknown


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
        # The numbers of vertices are independent of their levels.
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
        self._some = {
            name: (
                np.sort(each[0, :_WIDTH]),
                np.sort(rng.choice(self._counts[name], self._counts[name] // 3, replace=False)),
            )
            for name, each in levels.items()
            if self._counts[name]
        }
        each_alone = ({name: rows[at : at + 1] for name, rows in first.items()} for at in range(_WIDTH))
        self._seeds = (first, some, *each_alone)
        ends = np.cumsum([0, *(self._counts[name] for name in schema.of_types)])
        #: First row of each type in the module's result on the whole graph.
        self._first = dict(zip(schema.of_types, ends.tolist(), strict=False))

    def hops(self, model: TypedModel, most: int) -> int:
        """Smallest number of hops that suffices with the current parameters; 0 if no number does."""
        expected = model.output(self._whole(model.num_layers), self._place)
        first, *others = self._seeds
        if not self._rows_of(expected, first).isfinite().all():
            return 0
        for hops in range(model.num_layers, most + 1):
            # An operation on all vertices, such as pooling, may give the same outputs for some batch by chance.
            cases = [(first, hops), (first, hops + 1), *((each, hops) for each in others)]
            if all(
                alike(model.output(self._batch(*case), self._place), self._rows_of(expected, case[0])) for case in cases
            ):
                return hops
        return 0

    def hops_by_layer(self, model: TypedModel, found: list[tuple[LayerCall, ...]]) -> int:
        """Smallest number of hops that suffices for every layer; 0 if no number does, or there are under two layers.

        Args:
            found: gets the calls of the layers.
        """
        whole, place = self._whole(model.num_layers), self._place
        layers = layers_of(model, whole, place)
        found.append(layers)
        expected, values = model.output(whole, place), dict[OutputRows, Tensor]()
        levels = max((each.level for each in layers), default=0)
        if levels < 2 or not expected.isfinite().all():
            return 0
        for level in range(1, levels):
            for name in self._counts:
                if own := calls_of(layers, level, name):
                    found_rows = level_outputs(model, place, layers, level, name, whole, values)
                    values |= {(at, name): rows for at, rows in zip(own, found_rows, strict=True)}
        for hops in range(1, _MOST_OF_ONE + 1):
            if self._suffice(model, layers, hops, values, expected):
                return hops
        return 0

    def _suffice(
        self,
        model: TypedModel,
        layers: tuple[LayerCall, ...],
        hops: int,
        values: Mapping[OutputRows, Tensor],
        expected: Tensor,
    ) -> bool:
        """Whether some hops give the outputs of each level from the outputs of lower ones."""
        place, first, *others = self._place, *self._seeds
        wanted, levels = types_of_levels(self._schema, TypedReach(hops, is_exact=True, layers=layers)), list[bool]()

        def drawn(seeds: Mapping[str, NDArray[np.int64]], hops: int) -> tuple[TypedBatch, dict[OutputRows, Tensor]]:
            sample = self._sample(seeds, hops)
            at = {name: place.from_numpy(vertices) for name, vertices in sample.vertices.items()}
            return self._of_sample(sample), {key: rows[at[key[1]]] for key, rows in values.items()}

        for level, names in wanted.items():
            for name in names:
                own = calls_of(layers, level, name)
                for seeds, further in product(self._some.get(name, ()) if own else (), (0, 1)):
                    found = level_outputs(model, place, layers, level, name, *drawn({name: seeds}, hops + further))
                    at = place.from_numpy(seeds)
                    levels += [alike(rows, values[key, name][at]) for key, rows in zip(own, found, strict=True)]
        cases = [(first, hops), (first, hops + 1), *((each, hops) for each in others)]
        return all(levels) and all(
            alike(last_outputs(model, place, layers, *drawn(*case)), self._rows_of(expected, case[0])) for case in cases
        )

    def _rows_of(self, output: Tensor, seeds: Mapping[str, NDArray[np.int64]]) -> Tensor:
        """The rows of some vertices in the module's result on the whole graph."""
        numbers = [rows + self._first[name] for name, rows in seeds.items()]
        return output[self._place.from_numpy(np.concatenate(numbers))]

    def _whole(self, num_layers: int) -> TypedBatch:
        vertices = {name: np.arange(count) for name, count in self._counts.items()}
        entries = {each: np.arange(matrix.nnz) for each, matrix in self._matrices.items()}
        counts = {name: [count, *[0] * num_layers] for name, count in self._counts.items()}
        drawn = {each: [matrix.nnz, *[0] * (num_layers - 1)] for each, matrix in self._matrices.items()}
        return self._filled(vertices, self._matrices, entries, counts, drawn)

    def _batch(self, seeds: Mapping[str, NDArray[np.int64]], hops: int) -> TypedBatch:
        return self._of_sample(self._sample(seeds, hops))

    def _sample(self, seeds: Mapping[str, NDArray[np.int64]], hops: int) -> TypedSample:
        """The seeds and all neighbors up to some hops."""
        names = {each: str(number) for number, each in enumerate(self._matrices)}
        views = [RelationView(names[each], each[0], each[2], MatrixView(self._matrices[each])) for each in names]
        fanouts = dict.fromkeys(names.values(), (ALL,) * hops)
        sampler = TypedNeighborSampler(list(self._counts), views, 0, fanouts)
        return sampler.sample_of(seeds, 0, 0)

    def _of_sample(self, found: TypedSample) -> TypedBatch:
        names = {each: str(number) for number, each in enumerate(self._matrices)}
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
        return TypedBatch(fields, {name: counts[0] for name, counts in num_vertices.items()})


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
