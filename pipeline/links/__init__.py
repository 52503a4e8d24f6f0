"""Makes links: pairs of vertices in splits, drawn from a graph, and the graph without held-out edges."""
