"""Clusters of Dask workers: local processes, a running cluster, or the ranks of an MPI job.

The only room that imports Dask. Stages see a :class:`~gnnloom.pipeline.tasks.cluster.Cluster`, and none of this. A new
way to run tasks is a new ``Cluster`` that ``open_cluster`` opens.
"""
