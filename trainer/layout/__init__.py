"""How a dense (n, dim) matrix is spread over the ranks, and how it moves between layouts and to disk.

Imports ``comm``, ``place.arrays`` and ``storage``.  A new way to move a matrix is one file here, written in terms of
:class:`gnnloom.trainer.layout.layout.Layout` instead of an algorithm.
"""
