"""Sort 64-bit keys that do not fit in memory: radix sort, spill files, and a sorter with a bounded buffer.

This room knows nothing of graphs. It imports ``storage.errors`` only. A new kernel goes to ``radix``, a new file layout
to ``spill``, and whatever decides how many keys are in memory at a time to ``key_sorter``.
"""
