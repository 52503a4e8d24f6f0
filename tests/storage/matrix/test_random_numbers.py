"""Random numbers depend on seed, stream and position only, and have the right distribution."""

from __future__ import annotations

import numpy as np

from gnnloom.storage.matrix.random_numbers import normal, stream_key, uniform


def test_any_range_of_a_stream_can_be_computed_alone() -> None:
    key = stream_key(3, "weights")
    for draw in (uniform, normal):
        whole = draw(key, 0, 1000)
        for start, stop in ((0, 10), (7, 8), (501, 900)):
            np.testing.assert_array_equal(draw(key, start, stop), whole[start:stop])


def test_seeds_and_streams_are_independent() -> None:
    keys = {int(stream_key(seed, stream)) for seed in range(20) for stream in ("feature", "label")}
    assert len(keys) == 40


def test_the_distributions_have_their_moments() -> None:
    count = 100_000
    key = stream_key(0, "test")
    # Five standard errors of the mean and of the variance.
    sample = uniform(key, 0, count)
    assert abs(sample.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / count)
    assert 0 <= sample.min() <= sample.max() < 1
    deviates = normal(key, 0, count).astype(np.float64)
    assert abs(deviates.mean()) < 5 / np.sqrt(count)
    assert abs(deviates.var() - 1) < 5 * np.sqrt(2 / count)
