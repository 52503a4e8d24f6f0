"""Local computation of one rank: sparse products, attention, dropout.

Kernels neither communicate nor count traffic.

Imports ``storage.matrix``, ``place``, torch and numba; nothing else of the trainer.  ``dispatch`` is the only entry
point: everyone else asks it for a kernel, and a new implementation (CUDA) is one file here plus its choice there.
``c`` holds the kernels in C, which are optional; those compiled by numba give the same results.
"""
