"""How bytes get on and off disk: arrays, chunks, artifacts and their manifests, files and locks.

Imports ``storage.errors`` only. A new array on disk goes into the registry in ``schema``.
"""
