"""The decoders that a user may choose: one file with one ``DECODER`` each, from which choices and checks follow.

Loads no torch, so that the command line starts quickly; the classes are in the room above. To add a decoder, add a file
here (or in another package, with an entry point of the group ``gnnloom.decoders``). A class of your own needs no
descriptor: ``--decoder mypackage.mydecoder:MyDecoder``.
"""
