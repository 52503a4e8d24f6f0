"""Partitions for training on mini-batches."""
