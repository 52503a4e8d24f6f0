"""Makes links of one relation of a graph with types, and the graph without its held-out edges."""
