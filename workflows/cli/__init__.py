"""The `gnnloom` command: one file per command or group of commands.

The top room: it may import everything, and nothing imports it. To add a command, write `cli/NAME.py` with a click
command `NAME_command` and add its name to the table in `cli/main.py`.
"""
