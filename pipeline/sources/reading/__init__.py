"""Files, and text in them: found, opened, decompressed; lines, numbers, names and columns.

Imports no format. Code that two formats need belongs here; code for one format stays in that format's file.
"""
