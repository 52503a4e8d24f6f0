"""The models that a user may choose: one file with one ``MODEL`` each, from which choices and checks follow.

Loads no torch, so that the command line starts quickly; the classes are in ``networks``. To add a model, add a file
here (or in another package, with an entry point of the group ``gnnloom.models``). A class of your own needs no
descriptor: ``--model mypackage.mymodel:MyModel``.
"""
