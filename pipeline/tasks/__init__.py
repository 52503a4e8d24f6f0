"""The tasks of stages: phases, where they run, sizes, memory budgets, progress, and what is done again after a kill.

Imports nothing else of the pipeline, and no Dask.
"""
