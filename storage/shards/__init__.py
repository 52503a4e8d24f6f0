"""Readers of the parts of graphs that ranks load: rows (1D) and blocks of a grid (2D).

Imports ``storage.artifacts`` and the rooms below it.
"""
