"""Exchange with other programs: one file per foreign system or file format.

May import `storage`, and `pipeline` to store what another program made. To support another system, add one file here;
a table format goes into the writers of `tables.py`.
"""
