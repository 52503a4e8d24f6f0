"""Commands that store, show and export data: one file per command, or per few related commands."""
