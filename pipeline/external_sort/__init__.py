"""Sort 64-bit keys that do not fit in memory: radix sort, spill files, a sorter with a bounded buffer, and merges.

This room knows nothing of graphs. It imports ``storage.errors`` and the ranges of ``storage.matrix`` only. A new kernel
goes to ``radix``, a new file layout to ``spill``, a rule for the number of keys in memory to ``key_sorter``, a rule for
the number of open files to ``merge_levels``, and a copy of plain bytes to ``raw_files``.
"""
