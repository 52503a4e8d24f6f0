"""The stages of a recipe, one file each: the key of its result, whether it is done, how it runs, and its needs.

To add a stage, write a :class:`~gnnloom.workflows.recipe.stages.stage.RecipeStage` in its own file, and list it in
``all_stages.py``. Imports no planning code, which is slow to load; stages get plans as arguments.
"""
