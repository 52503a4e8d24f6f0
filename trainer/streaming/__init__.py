"""Exact scores of graphs whose features exceed memory: layers in ranges of rows, products in blocks of columns.

Between two products with the adjacency, a layer treats every row by itself. So its rows pass through memory a range at
a time, and matrices wait on disk in blocks of columns, each of which a product reads from start to end.
"""
