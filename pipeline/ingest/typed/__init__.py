"""Ingest of graphs with types, from a table per relation and tables of vertices.

``tables`` opens the tables and decides whether the ids of each type are numbers or names. ``numbering`` numbers the
vertices of all types with the mechanism of ``keys/``. ``stage`` has the order of the work: numbers, a matrix per
relation, ids.
"""
