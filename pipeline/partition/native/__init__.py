"""Partitioners behind one interface: a hypergraph goes in, the part of every vertex comes out."""
