"""The modes of training that a user may choose: one file with one ``MODE`` each, from which choices and checks follow.

Loads no torch, so that the command line starts quickly; the classes are in ``epochs``. To add a mode, add a file
here and one there (or both in another package, with an entry point of the group ``gnnloom.modes``).
"""
