"""Commands that train, predict, run recipes, forecast, or report on runs: one file per command."""
