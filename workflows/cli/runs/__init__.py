"""Commands that train, predict and run recipes, and those that forecast or report on runs: one file per command."""
