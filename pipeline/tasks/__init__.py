"""Where tasks run and how they report: clusters, memory budgets, progress.

The only room that imports Dask; it imports nothing else of the pipeline. A new way to run tasks is a new ``Cluster``
that ``cluster.open_cluster`` opens.
"""
