"""Sources of edges and of vertex data, one file per format."""
