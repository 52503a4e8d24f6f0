"""Ids that are names: an external sort of the distinct ones, and the numbers that they get."""
