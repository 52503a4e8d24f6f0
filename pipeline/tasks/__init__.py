"""The tasks of stages: phases, the clusters that run them, sizes, memory budgets, progress, and recovery after a kill.

Imports nothing else of the pipeline, and no Dask.
"""
