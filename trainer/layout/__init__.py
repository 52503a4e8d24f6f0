"""Spreads a dense (n, dim) matrix over the ranks, and moves it between layouts and to disk.

Imports ``comm``, ``place.arrays`` and ``storage``. A new way to move a matrix is one file here, written in terms of
:class:`gnnloom.trainer.layout.layout.Layout` instead of an algorithm.
"""
