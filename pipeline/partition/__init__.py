"""The partition stage: assigns every vertex to a part, and measures exactly what the parts exchange.

From below to above: settings, problem and partitioner (the descriptor); hypergraph and graph models; ``native``
programs, ``multilevel`` and ``stochastic``; ``methods``, one file per partitioner, where new ones go; options and
projections, derived from the descriptors; the stage.  May import ``pipeline.tasks``, ``pipeline.matrix_sort`` and
``storage``.
"""
