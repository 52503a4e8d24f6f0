"""The stochastic model: partitions for training on mini-batches, which exchange other rows than the whole graph does.

Imports ``storage``, the hypergraph and balance of the partition stage, and ``native``; not ``multilevel``.  A model of
another kind of batch is a file here that makes its hypergraph, called from ``batch_partition``.
"""
