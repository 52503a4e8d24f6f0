"""Native partitioners behind one function: a hypergraph or a graph goes in, the part of every vertex comes out.

A program's file in ``methods`` names its package and presets and holds the code of its child process; the file of
Mt-KaHyPar is here, because other methods use it. May import the problem and everything below it.
"""
