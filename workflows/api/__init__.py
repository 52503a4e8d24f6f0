"""The Python API: the functions and classes of ``import gnnloom``, and what they share with the command line.

One file per group of functions, named like the command files of `cli`. The commands call these functions, or the parts
of them that do not depend on how options are given. To add a function, write it here and add its name to
``workflows/gnnloom/__init__.py``. Modules that take long to import are imported inside functions.
"""
