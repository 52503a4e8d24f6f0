"""A training run on disk: its configuration, metrics, checkpoints and predictions.

Imports the catalog and ``storage.format``. Whatever a run writes gets its file name and its reader here.
"""
