"""The options of the API's functions as keyword arguments: their signatures, their types and their checks."""
