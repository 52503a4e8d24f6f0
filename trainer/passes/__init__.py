"""Computes exact outputs of all vertices of a rank; features, adjacency and layers may all be larger than memory.

Every evaluation here is made of passes: for each range of a rank's rows, read their inputs, compute, and write. Only
    ``passes`` has this loop, and ``ranges`` decides the number of rows that fit. The inputs of a pass depend on the
    model:

* ``layerwise``, ``edge_inference``: rows of all neighbors, from their owners. One pass per layer; its output is in a
  file, from which the next pass fetches rows. A module that does not offer its layers is one pass over several hops.
  Modules of graphs with types are in ``modes.epochs.typed``.
* ``rows_only``: the vertices' own rows, of models without a product.
* ``streamed_layers``: the vertices' own rows, and the rows of products with the adjacency that were formed before, in
  blocks of columns. ``program`` finds out which products a model needs, and writes the steps: passes, and products
  between them. ``memory`` fits the steps into memory, ``projection`` samples their time, ``evaluation`` runs them.
"""
