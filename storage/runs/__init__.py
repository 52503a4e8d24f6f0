"""A training run on disk: its configuration, metrics, checkpoints and predictions."""
