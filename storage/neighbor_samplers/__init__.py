"""The ways to draw neighbors that a user may choose: one file with one ``NEIGHBOR_SAMPLER`` each, and their options.

Loads no classes, as ``samplers`` does not; they are in ``sampling/layers``. To add one, add a file here and one
there (or both in another package, with an entry point of the group ``gnnloom.neighbor_samplers``).
"""
