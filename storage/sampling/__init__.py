"""Sampling a stored graph: which vertices make a mini-batch."""
