"""Files: written whole or not at all, sealed, locked, mapped, and the folders that hold them until they are complete.

Knows nothing of arrays and artifacts, which :mod:`gnnloom.storage.format` builds on it.
"""
