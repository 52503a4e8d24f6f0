"""Features, labels and splits that do not come with the edges: from separate files, by vertex id, or random.

Imports ``reading``, ``binary``, ``generators`` and the protocols in ``source`` and ``names``, but no format. To add a
kind of vertex data, add one file that holds a :class:`~gnnloom.pipeline.sources.vertex_data.kind.VertexKind` named
``VERTEX_KIND``.
"""
