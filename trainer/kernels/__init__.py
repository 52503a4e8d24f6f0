"""Local computation of one rank: sparse products, attention, dropout.

Kernels neither communicate nor count traffic.

Imports ``storage.matrix``, ``storage.errors``, ``place``, torch and numba; nothing else of the trainer. ``dispatch`` is
the only entry point: everyone else asks it for a kernel. Which one computes is up to the table of the place: ``table``
has that of this processor: ``c`` holds the kernels in C, and numba compiles the scores of pairs. ``without_values`` has
that of the forecast of memory, for which ``unperformed`` leaves out the work of torch's operations, too.
"""
