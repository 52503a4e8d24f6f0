"""The stochastic model: partitions for mini-batch training, which exchanges different rows than full-graph training.

Imports ``storage``, the hypergraph and balance of the partition stage, and ``native``; not ``multilevel``.  A model of
another kind of batch is a file here that makes its hypergraph, called from ``batch_partition``.
"""
