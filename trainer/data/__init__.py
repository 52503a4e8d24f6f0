"""What a rank reads: its shards, the vertex data of its rows, and the scaling of its adjacency."""
