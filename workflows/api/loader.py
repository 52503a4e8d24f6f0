"""Batches for PyTorch Geometric models, in any training loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import TypedGraph, Vertices
from gnnloom.storage.artifacts.links import PAIR, Links
from gnnloom.storage.artifacts.samples import StoredSamples
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import LABELS
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.storage.sampling.layers.options import check_neighbor_options, joint_relations
from gnnloom.storage.wording import counted
from gnnloom.trainer.loader.choices import ALL_VERTICES
from gnnloom.trainer.loader.data import check_installed
from gnnloom.trainer.loader.loader import Loader, Schedule
from gnnloom.trainer.loader.pairs import PairSource
from gnnloom.trainer.loader.stored import StoredSource, StoredTypedSource
from gnnloom.trainer.loader.streams import NeighborSource, Source
from gnnloom.trainer.loader.subgraphs import SubgraphSource
from gnnloom.trainer.loader.typed import TypedPairSource, TypedVertexSource
from gnnloom.trainer.loader.vertices import VertexChoice
from gnnloom.trainer.modes.options import AUTO, sampler_arguments
from gnnloom.workflows.api.catalog import CatalogLike, Dataset, DatasetLike, as_dataset
from gnnloom.workflows.api.options.keywords import ArtifactLike, key_of, with_options
from gnnloom.workflows.api.options.loader_options import (
    DRAWN,
    NEIGHBOR,
    OF_PAIRS,
    PACKED,
    SUBGRAPH,
    TYPED,
    TYPED_PACKED,
    TYPED_PAIRS,
    checked_options,
    loader_options,
    relation_fanouts,
)
from gnnloom.workflows.interop.graph_libraries import typed_graph
from gnnloom.workflows.interop.typed_transfer import stored_reverses

if TYPE_CHECKING:
    from gnnloom.workflows.api.options.option_types import LoaderKeywords


@with_options(loader_options())
def loader(
    dataset: DatasetLike,
    *,
    vertices: Any = None,
    of_type: str | None = None,
    links: bool | ArtifactLike | None = None,
    samples: ArtifactLike | None = None,
    graph: ArtifactLike | None = None,
    vertex_data: ArtifactLike | Mapping[str, ArtifactLike] | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[LoaderKeywords],
) -> Loader:
    """Iterate over batches as ``Data`` of PyTorch Geometric, drawn from a graph and features that stay on disk.

    Batches of a graph with types are ``HeteroData``, unless the graph has only one type and one relation.

    Equal arguments give equal batches, in any process. With ``size=1``, the batches equal the batches of ``gnnloom
    train --mode neighbor --draw-once`` on one rank, or of ``--mode subgraph``; with ``links``, the batches of ``--task
    link``.

    A batch has ``x``, ``edge_index`` (sources first) or ``adj_t``, ``y``, ``n_id`` and ``e_id`` (positions of vertices
    and edges in the graph), ``batch_size`` (the leading vertices are the examples), ``edge_weight`` if the graph is
    weighted or ``normalization`` is given, and ``num_sampled_nodes`` and ``num_sampled_edges`` of the hops, for
    ``trim_to_layer``. Subgraphs have ``train_mask``, ``val_mask`` and ``test_mask``, and with ``presamples``
    GraphSAINT's ``node_norm`` and ``edge_norm``. Batches of pairs have ``edge_label_index`` (numbers in the batch),
    ``edge_label`` and ``input_id``: first the pairs, then the negatives of the first pair, of the second pair, and so
    on. In splits valid and test, the negatives are the negatives that an evaluation uses; if all pairs share a pool of
    negatives, every batch has a part of the pool, and an epoch has the whole pool once.

    In a graph with types, each type has ``x``, ``y``, ``n_id`` and ``num_sampled_nodes``, and the type of the examples
    ``batch_size`` and ``input_id`` (numbers among the examples); each relation has ``edge_index``, ``e_id``,
    ``num_sampled_edges``, and the columns of its edges as ``edge_attr``, ``edge_weight``, ``time`` and ``edge_label``.
    In batches of pairs of a relation, the relation has the fields of the pairs, and the ends of the pairs come first
    among the vertices of their types; edge numbers of the relation include held-out edges. Vertices are numbered within
    their types, and edges within their relations, as in ``to_pyg()``.

    >>> for batch in gnnloom.loader("web", fanout=(5, 5), batch_size=16):
    ...     assert batch.batch_size <= 16
    ...     assert batch.x.shape == (batch.num_nodes, 8)

    Args:
        dataset: the dataset or its name.
        vertices: (num_seeds,) vertices, or a (num_vertices,) mask, instead of the vertices of a split.
        of_type: in a graph with types, the type of the examples; by default the only type with labels.
        links: links or their key, or True for the only links: return batches of their pairs, on the graph without
            held-out edges.
        samples: samples or their key, stored by `gnnloom sample --draw-once`, or by `gnnloom sample --of-type` for a
            graph with types: read stored batches instead of drawing them. Only the seeds then have labels.
        graph: the graph or its key, to choose between several.
        vertex_data: vertex data or their key, to choose between several features and labels; in a graph with types, by
            type.
        catalog: as for :func:`gnnloom.ingest`.

    Returns:
        An iterable of ``Data`` or ``HeteroData``, which is also a dataset for ``torch.utils.data.DataLoader(...,
        batch_size=None)``.

    Raises:
        MissingPackageError: PyTorch Geometric is not installed.
        InputError: an option is unknown, out of range, or does not apply to this kind of batches; or requested data are
            missing.
        NotFoundError: the dataset, its graph, links or samples do not exist.
    """
    check_installed()
    found = as_dataset(dataset, catalog)
    chosen_links = links if isinstance(links, bool) else key_of(links)
    data = (
        {name: key_of(each) for name, each in vertex_data.items()}
        if isinstance(vertex_data, Mapping)
        else key_of(vertex_data)
    )
    asked = _Asked(found, vertices, of_type, chosen_links, key_of(samples), key_of(graph), data)
    kind = asked.kind(options.get("sampler", NEIGHBOR))
    given = checked_options(options, kind)
    values = {name: option.default for name, option in loader_options().items()} | given
    schedule = Schedule(*(values[name] for name in ("rank", "size", "drop_last", "workers", "pool")))
    if kind == PACKED:
        # Stored samples already belong to one rank.
        source, schedule = asked.stored(values), replace(schedule, rank=0, size=1)
    elif kind == TYPED_PACKED:
        source = asked.typed_stored(values)
    elif kind == TYPED:
        source = asked.typed(values)
    elif kind == TYPED_PAIRS:
        source = asked.typed_pairs(values, given)
    elif kind == OF_PAIRS:
        source = asked.pairs(values, given)
    else:
        source = asked.subgraphs(values) if kind == SUBGRAPH else asked.neighbors(values)
    # The batch in use, the next batch, and batches prepared ahead: in a steady loop, no buffer is freed.
    return Loader(replace(source, kept=schedule.num_ahead + 2), schedule, values["epoch"])


@dataclass(frozen=True)
class _Asked:
    """Arguments of a loader other than its options; see :func:`loader`."""

    dataset: Dataset
    vertices: Any
    of_type: str | None
    links: str | bool | None
    samples: str | None
    graph: str | None
    vertex_data: str | Mapping[str, str] | None

    def kind(self, sampler: Any) -> str:
        """The kind of the batches.

        Raises:
            InputError: the arguments contradict each other.
        """
        has_types = typed_graph(self.dataset, self.graph) is not None
        if not has_types and self.of_type is not None:
            raise InputError(f"of_type {self.of_type!r}: the graph has no types")
        chosen = {
            OF_PAIRS: self.links is not None and self.links is not False,
            PACKED: self.samples is not None,
            SUBGRAPH: sampler in SAMPLERS,
            "given vertices": self.vertices is not None,
        }
        wanted = [name for name, is_chosen in chosen.items() if is_chosen]
        if len(wanted) > 1:
            raise InputError(f"loader: batches of {' and of '.join(wanted)} at the same time; choose one")
        if wanted == [OF_PAIRS]:
            has_types = self.stored_links.relation is not None
        if has_types and wanted == [SUBGRAPH]:
            raise InputError(f"loader: batches of {SUBGRAPH}: so far, a graph with types has sampled neighbors only")
        if has_types and wanted == [PACKED]:
            return TYPED_PACKED
        if has_types and wanted == [OF_PAIRS] and self.of_type is not None:
            raise InputError(f"of_type {self.of_type!r}: pairs have the types of their relation; leave it out")
        if has_types:
            return TYPED_PAIRS if wanted == [OF_PAIRS] else TYPED
        return wanted[0] if wanted and wanted[0] in {OF_PAIRS, PACKED, SUBGRAPH} else DRAWN

    def neighbors(self, values: dict[str, Any]) -> Source:
        """Batches of vertices with sampled neighbors."""
        graph = self.dataset.graph(self.graph)
        chosen = None if self.vertices is None else _seeds(self.vertices, graph.num_vertices)
        return NeighborSource(
            **self._common(graph.artifact.key, values, labels=values["labels"]), **_drawn(values), chosen=chosen
        )

    @cached_property
    def stored_links(self) -> Links:
        """The requested links."""
        links = self.dataset.links(self.links if isinstance(self.links, str) else None)
        if self.graph is not None and not links.message_graph.startswith(self.graph):
            raise InputError(f"{links.artifact.path}: links of graph {links.message_graph}, not {self.graph}")
        return links

    def typed(self, values: dict[str, Any]) -> Source:
        """Batches of vertices of one type."""
        graph = self.dataset.typed_graph(self.graph)
        stored = self._vertices_of_types(graph)
        of_type = self._seed_type(graph, stored)
        # Examples without labels are an error if labels are read.
        return TypedVertexSource(
            **self._of_types(graph, stored, values, needed=of_type, labels=values["labels"]),
            of_type=of_type,
            chosen=None if self.vertices is None else _seeds(self.vertices, graph.type(of_type).count),
        )

    def typed_pairs(self, values: dict[str, Any], given: dict[str, Any]) -> Source:
        """Batches of pairs of one relation."""
        graph = self.dataset.typed_graph(self.stored_links.message_graph)
        stored = self._vertices_of_types(graph)
        of_types = self._of_types(graph, stored, values, labels=given.get("labels", True))
        return TypedPairSource(**of_types, **_paired(self.stored_links, values, given))

    def _vertices_of_types(self, graph: TypedGraph) -> dict[str, Vertices]:
        """Vertex data by type, for types that have vertex data."""
        keys = self.vertex_data or {}
        if not isinstance(keys, Mapping):
            raise InputError(f"vertex_data {keys!r}: the graph has types; give a mapping from types to keys")
        return self.dataset.vertices_of_types(graph.artifact.key, keys)

    def _of_types(
        self,
        graph: TypedGraph,
        stored: Mapping[str, Vertices],
        values: dict[str, Any],
        *,
        needed: str | None = None,
        labels: bool,
    ) -> dict[str, Any]:
        """The fields that sources of a graph with types have.

        Args:
            stored: the data of vertices by type.
            needed: type whose vertices need labels, if labels are read.
            labels: read the labels of types that have labels.
        """
        choices = {}
        for name in {*stored, *([] if needed is None else [needed])}:
            data = stored.get(name)
            has_labels = data is not None and any(label in LABELS for label in data.names)
            choices[name] = VertexChoice(
                None if data is None else data.artifact.key,
                values["features"] if data is not None and data.has_feature else "none",
                values["feature_norm"],
                labels and (has_labels or name == needed),
            )
        if values["fanout_total"] and isinstance(values["fanout"], Mapping):
            raise InputError("fanout_total: fanout has a number for each relation; give one number per hop, as a total")
        drawn = _drawn(values | {"fanout": ()})
        relations, reverses = [each.edge_type for each in graph.relations], None
        if values["reverse"]:
            reverses = stored_reverses(self.dataset, graph).artifact.key
            relations += [graph.reverse(each.name).edge_type for each in graph.relations]
        return {
            **drawn,
            "dataset": self.dataset.path,
            "graph": graph.artifact.key,
            "seed": values["seed"],
            "vertices": choices,
            "features": values["features"],
            "reverses": reverses,
            "fanouts": relation_fanouts(values["fanout"], relations),
            "joint": joint_relations((), [name for _, name, _ in relations], total=values["fanout_total"]),
            "has_types": len(graph.types) > 1 or len(relations) > 1,
        }

    def _seed_type(self, graph: TypedGraph, stored: Mapping[str, Vertices]) -> str:
        """The type of the examples.

        Raises:
            NotFoundError: there is no such type.
            InputError: no type is given, and the number of types with labels is not one.
        """
        if self.of_type is not None:
            return graph.type(self.of_type).name
        labeled = [name for name, data in stored.items() if any(label in LABELS for label in data.names)]
        if len(labeled) != 1:
            names = [each.name for each in graph.types]
            have = f"{' and '.join(labeled)} have labels" if labeled else "no type has labels"
            raise InputError(f"of_type: {have}; choose the type of the examples: {', '.join(names)}")
        return labeled[0]

    def pairs(self, values: dict[str, Any], given: dict[str, Any]) -> Source:
        """Batches of pairs of a graph without types."""
        links = self.stored_links
        stored = self._vertices(links.message_graph)
        labels = given.get("labels", stored is not None and any(name in LABELS for name in stored.names))
        common = self._common(links.message_graph, values, labels=labels)
        return PairSource(**common, **_drawn(values), **_paired(links, values, given))

    def subgraphs(self, values: dict[str, Any]) -> Source:
        """Batches that are subgraphs."""
        presamples = values["presamples"]
        return SubgraphSource(
            **self._common(self.dataset.graph(self.graph).artifact.key, values, labels=values["labels"]),
            options={name: values[name] for name in ("sampler", "batch_size", "cluster_parts", "cluster_key")},
            arguments=sampler_arguments(values),
            num_batches=values["batches"],
            presamples=None if presamples == AUTO else presamples,
        )

    def stored(self, values: dict[str, Any]) -> Source:
        """Batches of stored samples."""
        samples = self.dataset.samples(self.samples)
        _check_size(samples, values["size"])
        common = self._common(samples.artifact.inputs["graph"], values, labels=values["labels"])
        return StoredSource(**common, samples=samples.artifact.key, rank=values["rank"])

    def typed_stored(self, values: dict[str, Any]) -> Source:
        """Batches of stored samples of a graph with types."""
        samples = self.dataset.typed_samples(self.samples)
        _check_size(samples, values["size"])
        if self.of_type not in {None, samples.of_type}:
            raise InputError(f"{samples.artifact.path}: batches of type {samples.of_type}, not {self.of_type}")
        choices = {
            name: VertexChoice(
                None,
                values["features"] if name in samples.widths else "none",
                values["feature_norm"],
                values["labels"] and name == samples.of_type,
            )
            for name in samples.types
        }
        return StoredTypedSource(
            dataset=self.dataset.path,
            graph=samples.artifact.inputs["graph"],
            vertices=choices,
            features=values["features"],
            samples=samples.artifact.key,
            rank=values["rank"],
            has_types=len(samples.types) > 1 or len(samples.relations) > 1,
        )

    def _common(self, graph: str, values: dict[str, Any], *, labels: bool) -> dict[str, Any]:
        """The fields that all sources have."""
        stored = self._vertices(graph)
        key = None if stored is None else stored.artifact.key
        return {
            "dataset": self.dataset.path,
            "graph": graph,
            "vertices": VertexChoice(key, values["features"], values["feature_norm"], labels),
            **{name: values[name] for name in ("normalization", "adj_t", "seed")},
        }

    def _vertices(self, graph: str) -> Vertices | None:
        """Features and labels of a graph; None if the dataset has none."""
        if isinstance(self.vertex_data, Mapping):
            raise InputError("vertex_data: the graph has no types; give one key")
        if self.vertex_data is None and not any(info.state == "complete" for info in self.dataset.untyped_vertices()):
            return None
        return self.dataset.vertices(self.vertex_data, None if self.vertex_data else graph)


def _check_size(samples: StoredSamples[Any], size: int) -> None:
    """Check that samples are for the processes that share an epoch.

    Raises:
        InputError: the samples were drawn for another number of processes.
    """
    if samples.num_ranks != size:
        raise InputError(
            f"{samples.artifact.path}: samples for {counted(samples.num_ranks, 'rank')}, but size is {size}; pass"
            f" size={samples.num_ranks}, or draw others with `gnnloom sample --ranks {size}`"
        )


def _drawn(values: dict[str, Any]) -> dict[str, Any]:
    """Fields of a source of sampled neighbors.

    Raises:
        InputError: options contradict each other.
    """
    check_neighbor_options(values)
    names = "split", "batch_size", "neighbor_sampler", "replace", "cache_memory", "shuffle"
    found = {name: values[name] for name in names}
    return found | {"fanouts": tuple(values["fanout"])}


def _paired(links: Links, values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Fields of a source of pairs.

    Raises:
        InputError: the split is not a split of pairs.
    """
    if values["split"] == ALL_VERTICES:
        raise InputError(f"split {ALL_VERTICES}: pairs are in split train, valid or test")
    trains, negatives = values["split"] == "train", values["negatives"]
    if negatives is None and links.kind != PAIR:
        negatives = 0
    elif negatives is None and trains:
        negatives = 1
    return {
        "links": links.artifact.key,
        "negatives": negatives,
        # Evaluations leave out no edges.
        "exclude_targets": given.get("exclude_targets", trains),
        **{name: values[name] for name in ("negative_sampler", "strict_negatives")},
    }


def _seeds(given: Any, num_vertices: int) -> NDArray[np.int64]:
    """(num_seeds,) int64 vertices, ascending, from numbers in any order or a mask.

    Raises:
        InputError: a vertex is repeated or out of range.
    """
    array = np.asarray(given)
    if array.dtype == bool and array.shape == (num_vertices,):
        array = np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"vertices: expected numbers of vertices or a mask of {num_vertices:,}, found {array.dtype} of shape"
            f" {array.shape}"
        )
    seeds = distinct(array.astype(np.int64), overwrite=True)
    if not len(seeds) or len(seeds) != len(array) or seeds[0] < 0 or seeds[-1] >= num_vertices:
        raise InputError(f"vertices: expected one or more different numbers from 0 to {num_vertices - 1:,}")
    return seeds
