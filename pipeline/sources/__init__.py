"""Sources of edges and vertex data: one file per format.

Formats import ``reading`` (text) and ``binary`` (arrays and tables), ``vertex_data`` and the protocols in ``source``
and ``names``. To add a format, add one file here that holds a :class:`~gnnloom.pipeline.sources.format.Format` named
``FORMAT``.
"""
