"""Distributed operators: one file per algorithm."""
