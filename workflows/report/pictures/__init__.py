"""Draws the pictures of reports in a common style."""
