"""Measures the cost of a partition: balance, and the rows that parts exchange, counted on the real matrix."""
