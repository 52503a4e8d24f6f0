"""The tasks of training runs, one descriptor per file; ``objectives`` has their losses, metrics and predictions.

Nothing here imports torch except ``objectives``, so that options, plans and reports stay fast.
"""
