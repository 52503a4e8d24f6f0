"""Batches of a graph with types: seeds of any types, and neighbors along each relation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.typed.mapped_graph import MappedRelation
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.permutation import mix
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.layers.expansion import Layers, SampledRelation, draw_layers, drawn_view
from gnnloom.storage.sampling.layers.graph_view import Draw, GraphView
from gnnloom.storage.sampling.sampler import Block


@dataclass(frozen=True)
class RelationView:
    """The rows of one relation.

    Attributes:
        name: name of the relation.
        source, target: names of the types.
    """

    name: str
    source: str
    target: str
    view: GraphView


def relation_views(relations: Mapping[str, MappedRelation], neighbor_sampler: str) -> list[RelationView]:
    """The rows of mapped relations, from which vertices draw as a neighbor sampler says; see :func:`drawn_view`."""
    return [
        RelationView(name, each.source, each.target, drawn_view(each.matrix, neighbor_sampler))
        for name, each in relations.items()
    ]


@dataclass(frozen=True)
class TypedSample:
    """A batch of a graph with types.

    Attributes:
        vertices: (num_vertices,) int64 vertices of each type: the seeds, then the vertices that each hop adds,
            ascending.
        blocks: rows of each relation, for the leading vertices of its target type; columns are positions in the
            vertices of the source type.
        num_vertices: number of seeds of each type, and then of the vertices that each hop adds.
        num_entries: number of entries of each relation that each hop draws.
    """

    vertices: Mapping[str, NDArray[np.int64]]
    blocks: Mapping[str, Block]
    num_vertices: Mapping[str, list[int]]
    num_entries: Mapping[str, list[int]]


class TypedNeighborSampler:
    """Draws neighbors of the seeds of a batch along each relation.

    A vertex draws from its row of every relation that leads to its type, when a batch first has it; all layers share
    what it drew, as in PyG. What a vertex draws from a relation depends on the batch, the hop, and the names of the
    relation and the vertex only: other relations do not matter, unless relations are joint.

    Args:
        types: names of the types.
        relations: rows of each relation.
        fanouts: entries to draw from each row of each relation, for each hop: ``ALL``, or 0 or more. All relations have
            one number of hops.
        replace: draw with replacement.
        joint: relations that share their fan-out, which is the same for all: a vertex draws this number of entries from
            the union of its rows of joint relations, each entry equally likely. Where one joint relation leads to a
            type, it draws as without.

    Raises:
        InputError: a fan-out is out of its range, or the fan-outs of joint relations differ.
    """

    def __init__(
        self,
        types: Sequence[str],
        relations: Sequence[RelationView],
        seed: int,
        fanouts: Mapping[str, Sequence[int]],
        *,
        replace: bool = False,
        joint: Collection[str] = (),
    ) -> None:
        hops = {len(fanouts[each.name]) for each in relations}
        if len(hops) > 1 or 0 in hops:
            raise InputError(f"fan-outs of {sorted(hops)} hops: expected the same number for all relations, 1 or more")
        for each in relations:
            if any(fanout != ALL and fanout < 0 for fanout in fanouts[each.name]):
                found = list(fanouts[each.name])
                raise InputError(f"fan-outs {found} of relation {each.name}: expected 0 or more, or {ALL} for all")
        if len({tuple(fanouts[each.name]) for each in relations if each.name in joint}) > 1:
            raise InputError(f"fan-outs {fanouts} of joint relations {sorted(joint)}: expected the same for all")
        self.types, self.relations, self.seed = tuple(types), tuple(relations), seed
        self.fanouts, self.replace, self._joint = fanouts, replace, joint
        self._num_hops = next(iter(hops), 0)
        number = {name: at for at, name in enumerate(self.types)}
        self._sampled = [SampledRelation(each.view, number[each.source], number[each.target]) for each in relations]

    def excluded(
        self, without: Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]]
    ) -> dict[str, NDArray[np.int64]]:
        """Positions of the entries to draw without, for :meth:`sample_of`.

        Args:
            without: rows and columns, (num_given,) int64 each, by relation.
        """
        views = {each.name: each.view for each in self.relations}
        return {name: views[name].positions(*ends) for name, ends in without.items() if name in views}

    def sample_of(
        self,
        seeds: Mapping[str, NDArray[np.int64]],
        epoch: int,
        batch: int,
        excluded: Mapping[str, NDArray[np.int64]] | None = None,
        most: int | None = None,
    ) -> TypedSample:
        """Draw neighbors of the seeds of a batch.

        Args:
            seeds: (num_seeds,) int64 vertices, ascending, of each type that has some.
            excluded: (num_excluded,) int64 positions of entries that relations are taken to lack, ascending, by name.
            most: number of entries that the batch may have.

        Raises:
            OversizedBatchError: the batch would have more than ``most`` entries.
        """
        given = [seeds.get(name, np.empty(0, np.int64)) for name in self.types]
        drawn = f"neighbor/{epoch}/{batch}"
        keys = {each.name: stream_key(self.seed, f"{drawn}/{each.name}") for each in self.relations}
        # Names have no slash, so no relation has the stream of a type.
        shared = {
            each.name: stream_key(self.seed, f"{drawn}/{each.target}/joint")
            for each in self.relations
            if each.name in self._joint
        }
        lacks = {each.name: (excluded or {}).get(each.name, np.empty(0, np.int64)) for each in self.relations}
        draws = [
            [
                Draw(
                    _stream(key, hop),
                    self.fanouts[name][hop],
                    self.replace,
                    lacks[name],
                    _stream(shared[name], hop) if name in shared else None,
                )
                for name, key in keys.items()
            ]
            for hop in range(self._num_hops)
        ]
        return self._sample(draw_layers(self._sampled, given, draws, draw_once=True, most=most))

    def _sample(self, layers: Layers) -> TypedSample:
        sizes = np.array(layers.sizes, np.int64)
        # Hop k draws for the vertices that hop k - 1 added.
        added = np.diff(sizes, axis=0, prepend=0)
        blocks = layers.blocks[0] if layers.blocks else ()
        entries = {
            each.name: np.diff(block.matrix.indptr[np.append(0, sizes[:-1, sampled.target])]).tolist()
            for each, sampled, block in zip(self.relations, self._sampled, blocks, strict=True)
        }
        return TypedSample(
            dict(zip(self.types, layers.vertices, strict=True)),
            {each.name: block for each, block in zip(self.relations, blocks, strict=True)},
            {name: added[:, at].tolist() for at, name in enumerate(self.types)},
            entries,
        )


def _stream(key: np.uint64, hop: int) -> np.uint64:
    """The random stream of a hop."""
    return np.uint64(mix(key + np.uint64(hop + 1)))
