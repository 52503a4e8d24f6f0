"""Distributed operators over layouts and a communicator; each file has the products of one algorithm.

Imports ``comm``, ``layout``, ``data``, ``storage``, and ``kernels.dispatch`` for local products; never a transport or
a kernel itself.
"""
