"""Makes links: pairs of vertices in splits, drawn or read from files, and the graph without held-out edges."""
