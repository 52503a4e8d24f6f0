"""The planner: which algorithm and process grid, how long an epoch takes and how much memory, before anything runs.

The steps of an epoch come from the descriptors of the algorithms (:mod:`gnnloom.trainer.algorithms.steps`), the rates
from a profile of the machine, which ``gnnloom calibrate`` measures.
"""
