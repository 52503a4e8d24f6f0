"""The external bucket sort from edges in any order to stored CSR row blocks, and the transpose, which uses it.

This room imports ``external_sort``, ``shuffle``, ``tasks``, ``storage`` and the protocols in ``sources.source``, and
none of its callers. A caller that adds arrays of its own to the artifact writes them between ``sort_edges`` and
``SortedMatrix.commit``.
"""
