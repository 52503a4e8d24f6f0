"""What a rank reads: shards, vertex data and the scaling of its adjacency; and what feeds a step.

Imports ``comm``, ``layout`` and ``storage``. A new kind of shards goes into ``open_shards``, new vertex data into
``vertex_data``. A step gets its batch from a maker of ``batches``, and the features of its vertices from a view of
``feature_view``; a new way to draw or store batches is a maker, a new place of features a view.
"""
