"""Counts the needs of a recipe's stages before anything runs."""
