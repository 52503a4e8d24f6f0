"""The `gnnloom` command: one file per command or group of commands.

The top room: it may import everything, and only `python -m gnnloom` imports it. Commands on data are in `data`,
    commands on runs in `runs`, commands about the installation here. To add one, write a file with a click command
    `NAME_command`, and
add it to the table in `main.py`.
"""
