"""Computes losses, metrics and predictions from a model's output, with one class per task."""
