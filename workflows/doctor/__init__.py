"""Checks an installation, for `gnnloom doctor` (checks of this machine) and `gnnloom check` (a tiny training run).

May import everything except `cli`, `run` and `report`. To add a check, write a function that returns a `Verdict` and
add it to the list in `installation.py`.
"""
