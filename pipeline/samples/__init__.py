"""Draws the batches of a training run ahead of it, and packs their features: the stage ``sample``.

Liu et al., "DiskGNN: Bridging I/O Efficiency and Model Accuracy for Out-of-Core GNN Training" (SIGMOD 2025).
"""
