"""Local computation of one rank: sparse products, attention, dropout.

Kernels neither communicate nor count traffic.

Imports ``storage.matrix``, ``storage.errors``, ``place``, torch and numba; nothing else of the trainer. ``dispatch`` is
the only entry point: everyone else asks it for a kernel. ``c`` holds the kernels in C; numba compiles the scores of
pairs.
"""
