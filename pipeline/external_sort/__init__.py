"""Sort 64-bit keys that do not fit in memory: radix sort, spill files, a sorter with a bounded buffer, and merges.

This room knows nothing of graphs. It imports ``storage.errors`` and the ranges of ``storage.matrix`` only. A new kernel
goes to ``radix``, a new file layout to ``spill``, whatever decides how many keys are in memory at a time to
``key_sorter``, whatever decides how many files are open at a time to ``merge_levels``, and whatever copies bytes as
they are to ``raw_files``.
"""
