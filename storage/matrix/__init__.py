"""Sparse matrices and index arithmetic in memory: CSR, ranges, keyed permutations, random numbers, fingerprints.

Imports NumPy, numba and ``storage.errors``, and knows nothing of files. A new pure computation that several rooms need
goes here.
"""
