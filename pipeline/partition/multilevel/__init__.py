"""Partitioning hypergraphs that do not fit the memory: what grows with the pins stays on disk and is streamed."""
