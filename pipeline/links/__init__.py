"""Makes links: pairs of vertices in splits, drawn from a graph, and the graph without those that are held out."""
