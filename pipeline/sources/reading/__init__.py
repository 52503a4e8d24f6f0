"""Files, and text in them: found, opened, decompressed; lines, numbers, names and columns.

Imports no format. Add here what a second format needs; what only one format needs stays in that format's file.
"""
