"""Samples of a stored graph: the vertices of a mini-batch, and the rows among them.

Imports ``storage.artifacts`` and ``storage.matrix``. A new sampler gets a file here and one in ``samplers``.

Every choice is a number of a counter-based random stream that belongs to the sampler's seed, the epoch and the batch.
So any process can draw any batch, in any order, and gets the same one; and no two batches repeat each other.
"""
