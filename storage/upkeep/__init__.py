"""Maintenance of a catalog: lineage, garbage collection, export to and import from one file.

Imports the catalog, never the reverse.
"""
