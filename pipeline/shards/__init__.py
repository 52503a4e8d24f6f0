"""The shard stages: row shards (one per rank) and grid shards (blocks of a permuted matrix).

Imports ``storage``, ``tasks``, ``external_sort``, ``shuffle`` and ``matrix_sort``; every other stage is reached through
its artifacts on disk. A new layout is one ``*_stage.py`` with a function that writes the shards and one that returns
their key.
"""
