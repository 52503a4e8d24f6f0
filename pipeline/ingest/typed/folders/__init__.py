"""Datasets with types that describe their own tables: a file for each layout, and the list of all layouts.

A layout is a function from a location to the :class:`~gnnloom.pipeline.ingest.typed.declared.DeclaredTables`, which are
then read as tables that a user names; to add a layout, add a file, and its function to ``layouts``.
"""
