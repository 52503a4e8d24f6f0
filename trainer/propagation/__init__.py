"""Multiplies the adjacency by matrices on disk; a rank holds a few columns at a time.

A rank's rows of a matrix are in a temporary file for each block of columns. Everything here works on such files and on
row shards; only ``stored_steps`` knows the artifact that the results become.
"""
