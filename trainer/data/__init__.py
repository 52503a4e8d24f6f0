"""Reads a rank's data: its shards, the vertex data of its rows, and the scaling of its adjacency.

Imports ``comm``, ``layout`` and ``storage``. A new kind of shards goes into ``open_shards``, new vertex data into
``vertex_data``.
"""
