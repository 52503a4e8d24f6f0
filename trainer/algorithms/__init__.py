"""The distributed algorithms: files with one or several ``ALGORITHM``, which define options, checks and operators.

Imports ``data.open_shards``; torch and MPI only inside ``build``, so that the command line starts quickly. To
add an algorithm, add a file here (or in another package, with an entry point of the group ``gnnloom.algorithms``); its
operator goes into ``operators``.
"""
