"""Sorting integer keys that do not fit in memory: radix sort, spill files, sorted runs.

Knows nothing of graphs.
"""
