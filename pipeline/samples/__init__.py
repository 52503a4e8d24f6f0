"""Draws the batches of a training ahead of it, and packs the features that they read: the stage ``sample``.

Liu et al., "DiskGNN: Bridging I/O Efficiency and Model Accuracy for Out-of-Core GNN Training" (SIGMOD 2025).
"""
