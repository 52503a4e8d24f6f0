"""Batches for models of PyTorch Geometric, in any loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import Vertices
from gnnloom.storage.artifacts.links import PAIR, Links
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import LABELS
from gnnloom.storage.samplers.registry import SUBGRAPH_SAMPLERS
from gnnloom.storage.wording import counted
from gnnloom.trainer.loader.choices import ALL_VERTICES
from gnnloom.trainer.loader.data import check_installed
from gnnloom.trainer.loader.loader import Loader, Schedule
from gnnloom.trainer.loader.pairs import PairSource
from gnnloom.trainer.loader.stored import StoredSource
from gnnloom.trainer.loader.streams import NeighborSource, Source
from gnnloom.trainer.loader.subgraphs import SubgraphSource
from gnnloom.trainer.loader.vertices import VertexChoice
from gnnloom.trainer.modes.options import AUTO, sampler_arguments
from gnnloom.workflows.api.catalog import CatalogLike, Dataset, DatasetLike, as_dataset
from gnnloom.workflows.api.options.keywords import with_options
from gnnloom.workflows.api.options.loader_options import (
    DRAWN,
    NEIGHBOR,
    OF_PAIRS,
    PACKED,
    SUBGRAPH,
    checked_options,
    loader_options,
)

if TYPE_CHECKING:
    from gnnloom.workflows.api.options.option_types import LoaderKeywords


@with_options(loader_options())
def loader(
    dataset: DatasetLike,
    *,
    vertices: Any = None,
    links: str | bool | Links | None = None,
    samples: str | None = None,
    graph: str | None = None,
    vertex_data: str | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[LoaderKeywords],
) -> Loader:
    """Iterate over batches as ``Data`` of PyTorch Geometric, drawn from a graph and features that stay on disk.

    Equal arguments give equal batches, in any process. Those of one process are the batches of ``gnnloom train --mode
    neighbor --draw-once`` on one rank, or of ``--mode subgraph``; with ``links``, the batches of ``--task link``.

    A batch has ``x``, ``edge_index`` (sources first) or ``adj_t``, ``y``, ``n_id`` and ``e_id`` (positions of vertices
    and edges in the graph), ``batch_size`` (the leading vertices are the examples), ``edge_weight`` if the graph is
    weighted or ``normalization`` is given, and ``num_sampled_nodes`` and ``num_sampled_edges`` of the hops, for
    ``trim_to_layer``. Subgraphs have ``train_mask``, ``val_mask`` and ``test_mask``, and with ``presamples``
    GraphSAINT's ``node_norm`` and ``edge_norm``. Batches of pairs have ``edge_label_index`` (numbers in the batch),
    ``edge_label`` and ``input_id``: first the pairs, then the negatives of the first, of the second, and so on. With
    the splits valid and test, these are the negatives that an evaluation of a run compares the pairs with; of a pool
    that all pairs share, every batch has a part, and an epoch the whole pool once.

    Args:
        dataset: the dataset or its name.
        vertices: (num_seeds,) vertices, or a mask of all, instead of the vertices of a split.
        links: key of links, or True for the only ones: batches of their pairs, on the graph without held-out edges.
        samples: key of samples that `gnnloom sample --draw-once` stored: read them instead of drawing.
        graph: key, to choose between several graphs.
        vertex_data: key, to choose between several features and labels.
        catalog: as for :func:`gnnloom.ingest`.

    Returns:
        An iterable of ``Data``, which is also a dataset for ``torch.utils.data.DataLoader(..., batch_size=None)``.

    Raises:
        MissingPackageError: PyTorch Geometric is not installed.
        InputError: an option is unknown, out of its range, or not one of this kind of batches; or what is asked for is
            missing.
        NotFoundError: the dataset, its graph, links or samples do not exist.
    """
    check_installed()
    found = as_dataset(dataset, catalog)
    asked = _Asked(found, vertices, links, samples, graph, vertex_data)
    kind = asked.kind(options.get("sampler", NEIGHBOR))
    given = checked_options(options, kind)
    values = {name: option.default for name, option in loader_options().items()} | given
    schedule = Schedule(*(values[name] for name in ("rank", "size", "drop_last", "workers", "pool")))
    if kind == PACKED:
        # Stored samples belong to one rank already.
        source, schedule = asked.stored(values), replace(schedule, rank=0, size=1)
    elif kind == OF_PAIRS:
        source = asked.pairs(values, given)
    else:
        source = asked.subgraphs(values) if kind == SUBGRAPH else asked.neighbors(values)
    return Loader(source, schedule, values["epoch"])


@dataclass(frozen=True)
class _Asked:
    """Request for a loader, besides its options; see :func:`loader`."""

    dataset: Dataset
    vertices: Any
    links: str | bool | Links | None
    samples: str | None
    graph: str | None
    vertex_data: str | None

    def kind(self, sampler: Any) -> str:
        """The kind of the batches.

        Raises:
            InputError: the arguments contradict each other.
        """
        chosen = {
            OF_PAIRS: self.links is not None and self.links is not False,
            PACKED: self.samples is not None,
            SUBGRAPH: sampler in SUBGRAPH_SAMPLERS,
            "given vertices": self.vertices is not None,
        }
        wanted = [name for name, is_chosen in chosen.items() if is_chosen]
        if len(wanted) > 1:
            raise InputError(f"loader: batches of {' and of '.join(wanted)} at the same time; choose one")
        return wanted[0] if wanted and wanted[0] in {OF_PAIRS, PACKED, SUBGRAPH} else DRAWN

    def neighbors(self, values: dict[str, Any]) -> Source:
        """Batches of vertices with sampled neighbors."""
        graph = self.dataset.graph(self.graph)
        chosen = None if self.vertices is None else _seeds(self.vertices, graph.num_vertices)
        return NeighborSource(
            **self._common(graph.artifact.key, values, labels=values["labels"]), **_drawn(values), chosen=chosen
        )

    def pairs(self, values: dict[str, Any], given: dict[str, Any]) -> Source:
        """Batches of pairs."""
        key = self.links if isinstance(self.links, str) else None
        links = self.links if isinstance(self.links, Links) else self.dataset.links(key)
        if self.graph is not None and not links.message_graph.startswith(self.graph):
            raise InputError(f"{links.artifact.path}: links of graph {links.message_graph}, not {self.graph}")
        if values["split"] == ALL_VERTICES:
            raise InputError(f"split {ALL_VERTICES}: pairs are in split train, valid or test")
        stored = self._vertices(links.message_graph)
        labels = given.get("labels", stored is not None and any(name in LABELS for name in stored.names))
        trains, negatives = values["split"] == "train", values["negatives"]
        if negatives is None and links.kind != PAIR:
            negatives = 0
        elif negatives is None and trains:
            negatives = 1
        return PairSource(
            **self._common(links.message_graph, values, labels=labels),
            **_drawn(values),
            links=links.artifact.key,
            negatives=negatives,
            # Evaluations leave nothing out.
            exclude_targets=given.get("exclude_targets", trains),
            **{name: values[name] for name in ("negative_sampler", "strict_negatives")},
        )

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
        if samples.num_ranks != values["size"]:
            raise InputError(
                f"{samples.artifact.path}: samples for {counted(samples.num_ranks, 'rank')}, but size is"
                f" {values['size']}; pass size={samples.num_ranks}, or draw others with `gnnloom sample --ranks"
                f" {values['size']}`"
            )
        common = self._common(samples.artifact.inputs["graph"], values, labels=values["labels"])
        return StoredSource(**common, samples=samples.artifact.key, rank=values["rank"])

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
        if self.vertex_data is None and not any(
            info.state == "complete" for info in self.dataset.artifacts("vertices")
        ):
            return None
        return self.dataset.vertices(self.vertex_data, None if self.vertex_data else graph)


def _drawn(values: dict[str, Any]) -> dict[str, Any]:
    """Fields of a source of sampled neighbors."""
    found = {name: values[name] for name in ("split", "batch_size", "replace", "shuffle")}
    return found | {"fanouts": tuple(values["fanout"])}


def _seeds(given: Any, num_vertices: int) -> NDArray[np.int64]:
    """(num_seeds,) int64 vertices, ascending, from numbers in any order or a mask.

    Raises:
        InputError: these are not different vertices.
    """
    array = np.asarray(given)
    if array.dtype == bool and array.shape == (num_vertices,):
        array = np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"vertices: expected numbers of vertices or a mask of {num_vertices:,}, found {array.dtype} of shape"
            f" {array.shape}"
        )
    seeds = np.unique(array.astype(np.int64))
    if not len(seeds) or len(seeds) != len(array) or seeds[0] < 0 or seeds[-1] >= num_vertices:
        raise InputError(f"vertices: expected one or more different numbers from 0 to {num_vertices - 1:,}")
    return seeds
