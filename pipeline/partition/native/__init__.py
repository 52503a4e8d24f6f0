"""Native partitioners behind one function: a hypergraph or a graph goes in, the part of every vertex comes out.

Each program has one file, which names its package and presets and holds what its child process runs.  May import the
problem and everything below it; a new program is one more file, and a descriptor in ``methods``.
"""
