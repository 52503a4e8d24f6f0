"""Distributed operators: the products of one algorithm per file, over layouts and a communicator.

Imports ``comm``, ``layout``, ``data``, ``storage``, and ``kernels.dispatch`` for local products; never a transport or
a kernel itself.
"""
