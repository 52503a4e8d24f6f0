"""Kernels in C: the sources, built when gnnloom is installed, and the classes that call them.

``library`` finds and describes the compiled library; the other modules implement contracts of
:mod:`gnnloom.trainer.place.contract`. Nothing here depends on the version of Python: ctypes calls plain functions.
"""
