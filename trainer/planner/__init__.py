"""The planner: chooses an algorithm and process grid, and forecasts time and memory of an epoch, before anything runs.

The steps of an epoch come from the descriptors of the algorithms (:mod:`gnnloom.trainer.algorithms.steps`), the rates
come from a profile of the machine, which ``gnnloom calibrate`` measures.
"""
