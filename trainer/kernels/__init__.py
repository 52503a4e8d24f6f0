"""Local computation of one rank: sparse products, attention, dropout.

Kernels neither communicate nor count traffic.

Imports ``storage.matrix``, ``storage.errors``, ``place``, torch and numba; nothing else of the trainer. ``dispatch`` is
the only entry point: all other rooms get kernels from it. The table of the place chooses the kernel. ``table`` has the
table of this processor: ``c`` holds the kernels in C, and numba compiles the scores of pairs. ``without_values`` has
the table of the memory forecast, for which ``unperformed`` also leaves out the work of torch's operations.
"""
