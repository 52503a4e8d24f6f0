"""Common parts of commands: their options and help, and how they print results and progress."""
