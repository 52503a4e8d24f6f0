"""Forecasts the needs of a training run: rehearses some epochs on arrays without values."""
