"""How bytes get on and off disk: arrays, chunks, artifacts and their manifests, files and locks.

Imports ``storage.errors`` and ``storage.meters``, and knows nothing of graphs or matrices. A new array on disk goes
into the registry in ``schema``, a new codec into ``chunks``.
"""
