"""Reads and writes arrays on disk: their chunks and metadata, and artifacts, which are arrays with a manifest.

Knows nothing of graphs or matrices. A new array on disk goes
into the registry in ``schema``, a new codec into ``chunks``.
"""
