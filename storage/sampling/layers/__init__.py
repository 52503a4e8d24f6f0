"""Batches of layers: rows are drawn for vertices, then for the vertices that these rows lead to, hop by hop.

``seeds`` has the vertices that the batches begin with; ``graph_view`` has the protocol through which rows are drawn,
and the rows of a matrix in memory or mapped; ``expansion`` draws all layers of a batch over any number of relations
between any number of types of vertices; ``numbering`` numbers the vertices of a batch. A graph without types has one
relation.
"""
