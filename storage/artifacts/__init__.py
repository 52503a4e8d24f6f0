"""One reader per kind of artifact except shards: graph, vertices, partition, samples, links, propagated values.

Imports ``storage.format`` and ``storage.matrix``. A new kind of artifact gets a file here and an entry in
``storage.format.schema``.
"""
