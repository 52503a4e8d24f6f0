"""Reads TOML files of sections into dataclasses, with errors that name the line, and writes such files."""
