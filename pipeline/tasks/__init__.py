"""Where tasks run and how they report: clusters, memory budgets, progress.

The only room that imports Dask. Imports ``storage`` only.
"""
