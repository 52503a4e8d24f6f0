"""Computes on pairs of vertices: the rows of both ends, scores, losses, and ranks among other pairs.

Knows no configuration, loop or command line. A pair (source, target) is the edge from source to target.
"""
