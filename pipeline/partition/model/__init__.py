"""The graph and hypergraph models of a matrix in memory, and what partitioners look up in them."""
