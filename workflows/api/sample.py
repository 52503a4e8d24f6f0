"""Draws the batches of a training ahead of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage import Graph, Partition
from gnnloom.storage.artifacts.samples import Samples
from gnnloom.storage.option import options_of
from gnnloom.workflows.api.catalog import CatalogLike, DatasetLike, as_dataset
from gnnloom.workflows.api.cluster import CLUSTER, on_cluster, once_per_job, stage_options
from gnnloom.workflows.api.options.keywords import with_options
from gnnloom.workflows.api.partition import find_partition

if TYPE_CHECKING:
    from gnnloom.workflows.api.options.option_types import SampleKeywords

_OPTIONS = options_of(SampleOptions)


@with_options({**_OPTIONS, **CLUSTER})
def sample(
    dataset: DatasetLike,
    *,
    graph: str | None = None,
    partition: str | None = None,
    method: str | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[SampleKeywords],
) -> Samples:
    """Draw the batches of some epochs, and pack the features that they read.

    ``gnnloom.train(dataset, mode="neighbor", samples=result.artifact.key)`` then reads them from disk.

    Args:
        dataset: the dataset or its name.
        graph: key, to choose between several graphs.
        partition: key of the partition for several ranks, if there are several.
        method: method of that partition, if there are several.
        catalog: as for :func:`gnnloom.ingest`, as are the options of the workers.
        options: as in ``gnnloom sample --help``: ``fanout``, ``batch_size``, ``epochs``, ``ranks``, ``seed``,
            ``replace``, ``cache_memory`` (bytes).

    Raises:
        InputError: an option is unknown, or the features, the labels or the split are missing.
        NotFoundError: the dataset, its graph or the partition does not exist.
        BudgetError: a batch may need more memory than a worker has.
    """
    found = as_dataset(dataset, catalog)
    settings, cluster = stage_options("sample", options, SampleOptions, _OPTIONS)

    def make() -> Samples:
        inputs = find_sampled(found, settings, graph, partition, method)
        return on_cluster(cluster, lambda opened: write_samples(found, *inputs, settings, opened))

    return once_per_job(make)


def find_sampled(
    dataset: StoredDataset, options: SampleOptions, graph: str | None, partition: str | None, method: str | None
) -> tuple[Graph, Partition | None]:
    """Find the inputs to sample from: the graph, and the partition that assigns vertices to ranks.

    Raises:
        NotFoundError: there is none; the message says how to make one.
    """
    chosen = dataset.graph(graph) if graph is not None else None
    if options.ranks == 1:
        return chosen or dataset.graph(), None
    parts = find_partition(dataset, options.ranks, partition, method, chosen)
    return chosen or dataset.graph(parts.artifact.inputs["graph"]), parts
