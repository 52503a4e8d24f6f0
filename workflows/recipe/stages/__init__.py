"""The stages of a recipe, one file each: what names its result, whether it is done, how it runs, and what it will need.

To add a stage, write a :class:`~gnnloom.workflows.recipe.stages.stage.RecipeStage` in a file of its own, and list it in
``all_stages.py``. Imports no planning code, which takes long to load; stages get what they read of it as an argument.
"""
