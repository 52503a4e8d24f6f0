"""The stochastic model: partitions for mini-batch training, which exchanges different rows than full-graph training.

Imports ``storage``, ``tasks``, ``shuffle``, the hypergraph and balance of the partition stage, and ``native``; not
``multilevel``. Tasks draw batches (``batch_drawer``), restrict the nets of row blocks to them (``restricted_nets``),
merge equal nets (``merged_nets``) and measure parts (``batch_volume``); a process of its own finds the parts (``fit``).
A model of another kind of batch is a file here that makes its hypergraph, called from ``batch_partition`` or ``fit``.
"""
