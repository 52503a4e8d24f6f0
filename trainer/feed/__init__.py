"""What feeds a step: makers of batches, and views of the features of their vertices.

A new way to draw or store batches is a maker in ``batches``, a new place of features a view in ``feature_view``.
"""
