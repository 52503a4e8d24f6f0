"""Synthetic graphs and vertex data, computed range by range without a file."""
