"""What the stages of a recipe will need, counted before anything runs."""
