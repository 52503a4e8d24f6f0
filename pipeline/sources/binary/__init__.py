"""Arrays, tables and pickles in binary files from elsewhere, read in blocks and without running code that they name.

Imports ``reading`` and the protocols in ``source`` and ``names``, but no format.
"""
