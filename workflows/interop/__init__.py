"""Exchanges data with other programs: one file per system or file format.

May import `storage`, `pipeline` and `trainer`. To support another system, add one file here; a table format goes into
the writers of `tables.py`.
"""
