"""Loggers: programs that show the metrics of a run while it trains, one file and one descriptor for each.

Imports ``storage`` only. To add one, write a file with a ``LOGGER``; other packages announce theirs as an entry point
of the group ``gnnloom.loggers``.
"""
