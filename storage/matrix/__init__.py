"""Sparse matrices and index arithmetic in memory: CSR, ranges, keyed permutations, fingerprints.

Imports NumPy and numba, and ``storage.errors``; knows nothing of files.
"""
