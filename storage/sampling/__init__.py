"""Samples a stored graph: chooses the vertices of a mini-batch.

Imports ``storage.artifacts`` and ``storage.matrix``. A new sampler gets a file here and a name in ``kinds.BATCHES``.
"""
