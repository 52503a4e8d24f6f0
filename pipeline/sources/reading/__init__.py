"""Parsing that several formats share: lines, numbers, names, columns, compressed and binary files.

Imports no format. Add here what a second format needs; what only one format needs stays in that format's file.
"""
