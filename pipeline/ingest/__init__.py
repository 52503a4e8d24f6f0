"""The ingest stages: edges of any source become the graph artifact, vertex data become the vertices artifact."""
