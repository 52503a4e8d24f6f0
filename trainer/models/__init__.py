"""Graph neural networks over any distributed operator: one file per model, listed in ``registry``.

Imports ``operators``, ``layout`` and ``kernels``; ``registry`` itself loads no torch. To add a model, write its file
and add it to ``registry``.
"""
