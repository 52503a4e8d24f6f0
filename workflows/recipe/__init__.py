"""Recipes: one TOML file that describes everything from raw data to a trained model, and the resulting stages.

Nothing here runs a stage. May import `interop` and the packages below `workflows`. To add a key, add a field to its
dataclass in `sections.py` or `sources.py`; to add a stage, see `stages`.
"""
