"""The Python API: the functions and classes of ``import gnnloom``, and code that they share with the command line.

One file per group of functions, named like the command files of `cli`. The commands call these functions, or the parts
that do not depend on the form of the options. To add a function, write it here and add its name to
``workflows/gnnloom/__init__.py``. Modules that are slow to import are imported inside functions.
"""
