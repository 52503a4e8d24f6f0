"""The shuffle: rows of named columns go from the tasks that have them to the tasks that need them, by position.

A row has an integer *position*. The tasks of one phase *route* rows: each sorts its own by position, and leaves them as
*runs* in its lane (:mod:`gnnloom.pipeline.external_sort.lanes`). If there are many runs, levels of merges follow. The
tasks of a later phase read ranges of positions. A new column is one :class:`~gnnloom.pipeline.shuffle.columns.Column`
in the list that the shuffle is made with, and its values where rows are routed.

A vector that every task looks up, such as the part of each vertex, is in a file that all tasks map
(:mod:`gnnloom.pipeline.shuffle.mapped_vectors`).
"""

from __future__ import annotations
