"""Feeds a step: makers of batches, views of the features of their vertices, and pairs as examples.

A new way to draw or store batches is a maker in ``batches``, a new place for features is a view in ``feature_view``.
``pair_seeds`` has pairs, their order and the edges that a batch leaves out; ``negatives`` draws negatives of pairs.
"""
