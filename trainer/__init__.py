"""MPI ranks that read their shards and train.

Imports ``storage``, never ``pipeline``. A new algorithm goes into ``algorithms``, a new model into ``models``, a new
option into ``config``.
"""
