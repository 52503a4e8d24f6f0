"""Recipes: one TOML file that says everything from raw data to a trained model, and the stages it implies."""
