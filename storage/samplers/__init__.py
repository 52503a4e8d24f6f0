"""The samplers of subgraphs that a user may choose: one file with one ``SAMPLER`` each.

Loads no classes, so that the command line starts quickly; they are in ``sampling``. To add one, add a file
here and one there (or both in another package, with an entry point of the group ``gnnloom.samplers``).
"""
