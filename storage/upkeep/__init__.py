"""Looks after a catalog: lineage, disk usage, garbage, removal, archives in one file, and copies to and from URLs.

Imports the catalog, ``storage.runs`` and ``storage.checks``; only ``storage.public`` imports this room. A new method of
datasets is a function here and a method of one line there.
"""
