"""How arrays get on and off disk: their chunks and metadata, and the artifacts that they make up, with manifests.

Knows nothing of graphs or matrices. A new array on disk goes
into the registry in ``schema``, a new codec into ``chunks``.
"""
