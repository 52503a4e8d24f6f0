"""TOML files of sections: read into dataclasses with errors that name the line, and written."""
