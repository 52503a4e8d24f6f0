"""The `gnnloom` command."""
