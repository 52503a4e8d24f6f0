"""Graph neural networks over any distributed operator: one class per file, chosen by the descriptors in ``models``.

``model`` holds the base class and the contract of a model. Imports ``operators``, ``layout`` and ``kernels``.
"""
