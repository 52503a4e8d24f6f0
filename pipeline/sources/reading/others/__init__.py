"""Refuses files and rows that are not edges, although they could be read so, and names a remedy.

``foreign`` knows other formats by their first bytes, ``other_rows`` knows rows that are not edges, ``lists`` lines of a
vertex and its neighbors and rows of matrices, and ``margins`` what stands above and below a table.
"""
