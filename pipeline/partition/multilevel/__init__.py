"""The out-of-core partitioner: everything that grows with the pins stays on disk and is streamed.

Imports ``storage``, ``tasks``, ``external_sort``, the hypergraph and balance of the partition stage, and ``native``
for what fits in memory; not ``stochastic``.  A new step of the method (clustering, contraction, refinement) is a file
here, called from ``out_of_core``.
"""
