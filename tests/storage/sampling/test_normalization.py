"""GraphSAINT's weights make the loss and the sums of subgraphs unbiased."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gnnloom.storage.errors import InputError
from gnnloom.storage.sampling.normalization import count_samples
from gnnloom.storage.sampling.sampler import SubgraphSampler
from support.graphs import random_adjacency
from support.samples import in_memory, sampler_of

COUNTED, FRESH = 6000, 3000


@pytest.mark.parametrize("kind", ["frontier", "vertex", "edge", "walk", "cluster"])
def test_weighted_losses_and_sums_of_fresh_batches_are_unbiased(kind: str) -> None:
    n = 40
    adjacency = random_adjacency(n, 90, 0, symmetric=True)
    sampler = sampler_of(kind, in_memory(adjacency), 15)
    assert isinstance(sampler, SubgraphSampler)
    weights = count_samples(sampler, COUNTED)
    rng = np.random.default_rng(0)
    loss, feature = rng.random(n), rng.random(n)
    losses, plain, sums = [], [], np.full((FRESH, n), np.nan)
    for number in range(FRESH):
        sample = sampler.sample(number // sampler.num_batches, number % sampler.num_batches)
        (block,) = sample.blocks
        losses.append(weights.loss_weight(sample) @ loss[sample.vertices])
        plain.append(loss[sample.vertices].mean())
        factor = weights.entry_weight(block, sample.vertices)
        shape = (len(sample.vertices), len(sample.vertices))
        matrix = scipy.sparse.csr_array((factor, block.matrix.indices, block.matrix.indptr), shape=shape)
        sums[number, sample.vertices] = matrix @ feature[sample.vertices]
    # The counted weights have an error of their own, with the same deviation for as many batches.
    spread = np.sqrt(1 / FRESH + 1 / COUNTED)
    assert abs(np.mean(losses) - loss.mean()) < 4.5 * np.std(losses) * spread + 1e-12
    drawn = np.count_nonzero(~np.isnan(sums), axis=0)
    # Where a neighbor is missing in a few batches only, the deviation that is found is far too small now and then.
    error = (np.nanmean(sums, axis=0) - adjacency @ feature) / np.maximum(np.nanstd(sums, axis=0), 0.05)
    assert np.abs(error / np.sqrt(1 / drawn + FRESH / (COUNTED * drawn))).max() < 4.5
    if kind == "frontier":
        assert abs(np.mean(plain) - loss.mean()) > 4.5 * np.std(plain) * spread


def test_what_was_never_counted_has_finite_weights() -> None:
    sampler = sampler_of("walk", in_memory(random_adjacency(500, 900, 0, symmetric=True)), 20)
    assert isinstance(sampler, SubgraphSampler)
    weights = count_samples(sampler, 1)
    for batch in range(20):
        sample = sampler.sample(0, batch)
        assert np.isfinite(weights.loss_weight(sample)).all()
        assert (weights.entry_weight(sample.blocks[0], sample.vertices) > 0).all()
    with pytest.raises(InputError, match="pre-sampling of 0"):
        count_samples(sampler, 0)
