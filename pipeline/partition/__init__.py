"""The partition stage: assigns every vertex to a part, and counts exactly the rows that parts exchange.

From below to above: settings, and partitioner (the descriptor and its problem); hypergraph and graph models; ``native``
programs, ``multilevel`` and ``stochastic``; ``methods``, one file per partitioner, where new ones go; options, derived
from the descriptors; the stage; and its plan, with the needs of tasks and methods. May import ``pipeline.tasks``,
``pipeline.shuffle``, ``pipeline.matrix_sort`` and ``storage``.
"""
