"""Exchange with other programs: PyG, DGL, xarray, METIS files, tables."""
