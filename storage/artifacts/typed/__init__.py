"""Graphs with types: names of types and relations, ids of the source by type, and the reader of such a graph.

``typed_graph`` reads the artifact; ``source_ids`` is shared with graphs without types, ``typed_names`` with the stages
that make such graphs.
"""
