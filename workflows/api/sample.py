"""Draws training batches ahead of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage import Graph, Partition, TypedGraph
from gnnloom.storage.artifacts.samples import Samples
from gnnloom.storage.artifacts.typed.typed_samples import TypedSamples
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.option import options_of
from gnnloom.workflows.api.catalog import CatalogLike, DatasetLike, as_dataset
from gnnloom.workflows.api.cluster import CLUSTER, on_cluster, once_per_job, stage_options
from gnnloom.workflows.api.options.keywords import ArtifactLike, key_of, with_options
from gnnloom.workflows.api.partition import find_partition
from gnnloom.workflows.interop.graph_libraries import typed_graph

if TYPE_CHECKING:
    from gnnloom.workflows.api.options.option_types import SampleKeywords

_OPTIONS = options_of(SampleOptions)


@with_options({**_OPTIONS, **CLUSTER})
def sample(
    dataset: DatasetLike,
    *,
    graph: ArtifactLike | None = None,
    partition: ArtifactLike | None = None,
    method: str | None = None,
    vertex_data: Mapping[str, ArtifactLike] | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[SampleKeywords],
) -> Samples | TypedSamples:
    """Draw the batches of some epochs, and pack the features that they read.

    ``gnnloom.train(dataset, mode="neighbor", samples=result)`` then reads the batches from disk.

    Args:
        dataset: the dataset or its name.
        graph: the graph or its key, to choose between several.
        partition: the partition for several ranks or its key, to choose between several.
        method: method of that partition, if there are several.
        vertex_data: in a graph with types, vertex data or their keys by type, to choose between several.
        catalog: as for :func:`gnnloom.ingest`, as are the options of the workers.
        options: as in ``gnnloom sample --help``: ``fanout``, ``batch_size``, ``epochs``, ``ranks``, ``seed``,
            ``replace``, ``cache_memory`` (bytes); in a graph with types ``of_type``, ``relation_fanout``,
            ``fanout_total`` and ``reverse``.

    Raises:
        InputError: an option is unknown, or the features, the labels or the split are missing.
        NotFoundError: the dataset, its graph or the partition does not exist.
        BudgetError: a batch may need more memory than a worker has.
    """
    found = as_dataset(dataset, catalog)
    settings, cluster = stage_options("sample", options, SampleOptions, _OPTIONS)

    keys = {name: key_of(each) for name, each in (vertex_data or {}).items()}

    def make() -> Samples | TypedSamples:
        inputs = find_sampled(found, settings, key_of(graph), key_of(partition), method)
        made = on_cluster(cluster, lambda opened: write_samples(found, *inputs, settings, opened, keys))
        return open_samples(found, made.artifact.key)

    return once_per_job(make)


def open_samples(dataset: StoredDataset, key: str) -> Samples | TypedSamples:
    """Samples of a graph with or without types."""
    is_typed = dataset.find("samples", key).version == TYPED_VERSION
    return dataset.typed_samples(key) if is_typed else dataset.samples(key)


def find_sampled(
    dataset: StoredDataset, options: SampleOptions, graph: str | None, partition: str | None, method: str | None
) -> tuple[Graph | TypedGraph, Partition | None]:
    """Find the inputs to sample from: the graph, and the partition that assigns vertices to ranks.

    In a graph with types, ranks take turns at the batches of one list, without a partition.

    Raises:
        NotFoundError: there is no such graph or partition; the message tells how to make it.
        InputError: a partition is given for a graph with types.
    """
    typed = typed_graph(dataset, graph)
    if typed is not None:
        for name, given in (("partition", partition), ("method", method)):
            if given is not None:
                raise InputError(f"{name}: ranks take turns at the batches of a graph with types; leave the option out")
        return typed, None
    chosen = dataset.graph(graph) if graph is not None else None
    if options.ranks == 1:
        return chosen or dataset.graph(), None
    parts = find_partition(dataset, options.ranks, partition, method, chosen)
    return chosen or dataset.graph(parts.artifact.inputs["graph"]), parts
