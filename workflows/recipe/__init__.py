"""Recipes: one TOML file that describes everything from raw data to a trained model, and the resulting stages.

From a file to stages, in this order; nothing here runs a stage:

1. ``request.py``: :meth:`RecipeRequest.check` does everything below, and checks what can be known before anything runs.
2. ``read.py``: a document (``toml/``) becomes a :class:`Recipe` (``recipe.py``) of one dataclass for each section
   (``sections.py``, ``sources.py``, ``tables.py``).
3. ``stages/all_stages.py``: :func:`find_stages` asks each stage for its options, its key and whether it is done. Stages
   read the recipe and the keys of the stages before them from :class:`RecipeFacts` (``found.py``).

May import `interop` and the packages below `workflows`. To add a key, add a field to its dataclass in `sections.py` or
`sources.py`; to add a stage, see `stages`.
"""
