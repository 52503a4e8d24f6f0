"""Samplers of subgraphs as a stored dataset and options give them, and their normalizations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gnnloom.storage.artifacts.part_members import map_part_members
from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.storage.sampling.normalization import count_samples, count_sufficiently
from gnnloom.storage.sampling.sampler import Normalization, SubgraphSampler


def subgraph_sampler(
    dataset: Dataset, graph: WholeGraph, seed: int, options: Mapping[str, Any], arguments: Mapping[str, Any]
) -> SubgraphSampler:
    """The sampler that options choose.

    Args:
        options: ``sampler``, ``batch_size``, and ``cluster_parts`` and ``cluster_key`` for one that draws parts.
        arguments: arguments of the sampler's class that come from its own options.

    Raises:
        InputError: the sampler refuses its arguments.
        NotFoundError: the dataset does not have the partition whose parts are drawn.
    """
    kind = SAMPLERS[options["sampler"]]
    make: Callable[..., SubgraphSampler] = kind.load()
    if not kind.draws_parts:
        return make(graph, seed, size=options["batch_size"], **arguments)
    parts = dataset.partition(options["cluster_parts"] or None, options["cluster_key"] or None)
    return make(graph, seed, parts=map_part_members(parts), **arguments)


def normalization_of(sampler: SubgraphSampler, presamples: int | None, *, symmetric: bool) -> Normalization:
    """The weights of a sampler's batches: exact ones, or from counts if its probabilities are not known.

    Args:
        presamples: batches to count; None for a sufficient number.
        symmetric: the graph's pattern equals its transpose.
    """
    exact = sampler.exact_normalization(symmetric=symmetric)
    if exact is not None:
        return exact
    return count_sufficiently(sampler) if presamples is None else count_samples(sampler, presamples)
