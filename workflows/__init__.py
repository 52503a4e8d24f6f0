"""The command line and everything that runs whole workflows.

May import every other top-level package. Rooms, from the bottom up: `parsing` and `formatting` (sizes as text),
`interop` (other programs), `recipe` (what to run), `run`, `report` and `doctor`, and `cli` on top. A room imports only
rooms below it.
"""
