"""Trains on MPI ranks; each rank reads its own shards.

Imports ``storage``, never ``pipeline``. A new algorithm goes into ``algorithms``, a new model into ``models``, a new
option into ``config``.
"""
