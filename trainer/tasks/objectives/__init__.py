"""What tasks compute from a model's output: losses, metrics and predictions, one class per task."""
