"""Commands that store, show and export data: one file per command, or a few that belong together."""
