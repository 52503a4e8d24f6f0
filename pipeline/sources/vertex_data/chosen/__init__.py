"""Vertex data from chosen columns of a table: which columns, what surveys find in them, and the values of their cells.

``chosen_columns`` finds the columns and reads their values, ``surveys`` finds words and means before, ``like`` takes
these from vertex data that are stored, and ``column_sources`` are the sources of vertex data that ingest reads.
"""
