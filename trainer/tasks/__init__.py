"""Tasks: what a training run predicts, one descriptor per file; ``objectives`` has what they compute.

Nothing here imports torch except ``objectives``, so that options, plans and reports stay fast.
"""
