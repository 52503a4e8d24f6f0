"""The ingest stages: edges of any source become the graph artifact, vertex data become the vertices artifact.

This room imports ``matrix_sort`` and every room below it. Code that changes ids before the sort belongs here, code that
numbers them in ``keys/``, and tables with ids in ``tables/``; a new file format belongs in ``sources``.
"""
