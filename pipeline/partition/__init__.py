"""The partition stage: assigns every vertex to a part, and measures exactly what the parts exchange.

From below to above: settings, problem and partitioner (the descriptor); hypergraph and graph models; ``native``
programs, ``multilevel`` and ``stochastic``; ``methods``, one file per partitioner, where new ones go; options and costs
of methods, derived from the descriptors; the stage; and the counts of its plan. May import ``pipeline.tasks``,
``pipeline.shuffle``, ``pipeline.matrix_sort`` and ``storage``.
"""
