"""Vertex data from chosen columns of a table: the columns, surveys of their words and means, and the values.

``chosen_columns`` finds the columns and reads their values, ``surveys`` finds words and means first, ``like`` takes
words and means from stored vertex data instead, and ``column_sources`` are the sources of vertex data that ingest
reads.
"""
