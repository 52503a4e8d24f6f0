"""Numbers distinct keys, which are ids or names, by an external sort: the rank of a key becomes the number of a vertex.

Files only. ``collect`` leaves, for some edges at a time, their sorted distinct keys and the edges as positions among
them. ``merge`` cuts the keys of all files into ranges, merges these, and routes the number of every collected key back
to its file. ``numbered`` has the plan of both, and reads the edges by number; ``arrays`` stores the keys along with the
graph. The differences between ids and names are in ``key_types``.
"""
